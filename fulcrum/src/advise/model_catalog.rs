//! The models that advice chooses among.

use super::question::Purpose;
use crate::error::{OrError, Result};
use hwprofiles::TableRows;
use scenarios::{GgufRepository, Model};

const MODELS: &str = include_str!("models.csv");

/// A model with what its file cannot say.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CataloguedModel {
    pub model: Model,
    /// The year of its release, where it is known.
    pub year: Option<u64>,
    pub purposes: Vec<Purpose>,
    /// Where its GGUF files are on Hugging Face, where that is known.
    pub repository: Option<GgufRepository>,
}

impl CataloguedModel {
    /// Every model of the catalogue.
    pub fn all() -> Result<Vec<Self>> {
        let mut rows = TableRows::new(MODELS.as_bytes(), "models.csv").or_failed()?;
        let mut models = Vec::new();
        while rows.advance().or_failed()? {
            let cell = |at: usize| String::from_utf8_lossy(rows.cell(at)).into_owned();
            models.push(Self {
                model: Model::preset(&cell(0)).or_failed()?,
                year: cell(1).parse().ok(),
                purposes: cell(2).split_whitespace().filter_map(|word| word.parse().ok()).collect(),
                repository: Model::gguf_repository(&cell(0)),
            });
        }
        Ok(models)
    }

    /// The model called `name`: of the catalogue where it is there, otherwise a preset's or a
    /// file's.
    pub fn named(name: &str) -> Result<Self> {
        let model = crate::pipeline::model(name)?;
        let known = Self::all()?.into_iter().find(|known| known.model == model);
        Ok(known.unwrap_or(Self { model, year: None, purposes: vec![], repository: None }))
    }

    /// The format that it was trained in, where files in others make no sense.
    pub fn own_format(&self) -> Option<&'static str> {
        self.repository.and_then(|repository| repository.only)
    }

    /// The size of a dense model of today that is about as capable, in parameters: the geometric
    /// mean of all parameters and those of one token, halved for each year of age.
    pub fn capability(&self, newest: u64) -> f64 {
        let [all, active] = [self.model.parameters(), self.model.active_parameters()].map(|it| it.as_f64());
        let age = self.year.map_or(0, |year| newest.saturating_sub(year));
        (all * active).sqrt() * 0.5_f64.powi(i32::try_from(age).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_of_the_catalogue_is_a_preset_for_some_purpose() {
        let all = CataloguedModel::all().expect("a table");
        assert!(all.len() >= 40, "{} models", all.len());
        for entry in &all {
            assert!(!entry.purposes.is_empty() && entry.year.is_some(), "{}", entry.model.name);
        }
    }

    #[test]
    fn of_equal_sizes_the_newer_and_the_denser_are_more_capable() {
        let of = |name: &str| CataloguedModel::named(name).expect("a model").capability(2026);
        assert!(of("qwen3.5-27b") > of("gemma-3-27b"));
        assert!(of("qwen3-32b") > of("qwen3-30b-a3b"));
        assert!(of("llama-3.1-70b") < of("qwen3.5-122b-a10b"));
    }
}
