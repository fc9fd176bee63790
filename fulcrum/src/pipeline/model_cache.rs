//! Models as scenarios name them, each read once.

use scenarios::{Model, Reference, ScenarioError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Models that were read, by folder and name: a sweep asks for the same ones again and again.
#[derive(Debug, Default)]
pub(crate) struct ModelCache(Mutex<BTreeMap<(PathBuf, String), Model>>);

impl ModelCache {
    /// The model that `reference` means.
    ///
    /// # Errors
    /// There is no such model, or its file is wrong.
    pub(crate) fn get(&self, reference: &Reference) -> Result<Model, ScenarioError> {
        let key = (reference.folder.clone(), reference.text.clone());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        match known {
            Some(model) => Ok(model),
            None => {
                let model = reference.load()?;
                self.insert(key, model.clone());
                Ok(model)
            }
        }
    }

    /// Lets scenarios that lie in no folder call `model` by `name`.
    pub(crate) fn put(&self, name: &str, model: Model) {
        self.insert((PathBuf::new(), name.to_owned()), model);
    }

    fn insert(&self, key: (PathBuf, String), model: Model) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, model);
    }
}
