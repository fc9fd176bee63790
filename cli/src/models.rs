//! Models as scenarios name them, each read once.

use scenarios::{Model, Reference, ScenarioError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Those that were read: a sweep asks for the same ones again and again.
#[derive(Debug, Default)]
pub struct Models(Mutex<BTreeMap<(PathBuf, String), Model>>);

impl Models {
    /// The model that `reference` means.
    ///
    /// # Errors
    /// It is none, or its `config.json` is wrong.
    pub fn get(&self, reference: &Reference) -> Result<Model, ScenarioError> {
        let key = (reference.folder.clone(), reference.text.clone());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        match known {
            Some(model) => Ok(model),
            None => {
                let model = reference.load()?;
                self.know(key, model.clone());
                Ok(model)
            }
        }
    }

    /// Lets scenarios that lie in no folder call `model` by `name`.
    pub fn put(&self, name: &str, model: Model) {
        self.know((PathBuf::new(), name.to_owned()), model);
    }

    fn know(&self, key: (PathBuf, String), model: Model) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, model);
    }
}
