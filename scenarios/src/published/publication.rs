//! Published results: for each system its rows, and how each row is reproduced.
//!
//! A publication is two files of one name; those that are shipped are in the folder `published` of this crate, and in the program. The `.csv` has the rows as they were published, each
//! with its source. The `.yaml` says for groups of rows which run of which machine and model stands for them, and
//! what of that run is the published metric. It is data alone: a system is added without code.
//!
//! Texts may hold `${…}`, an [`Expression`] over the row's numbers (its columns, and what a [`Filter`] reads from
//! them) and the publication's constants.

use super::expression::Expression;
use super::pattern::{Filter, Pattern};
use super::rows::PublishedRow;
use super::scope::Scope;
use hwprofiles::FileError;
use hwprofiles::yaml::{self, Entries};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One system's publication and how it is reproduced.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// The system's name.
    pub system: String,
    /// Where its numbers were published.
    pub source: String,
    /// Under which licence they are held here.
    pub licence: String,
    /// How many resources limit it: what is wanted of the errors.
    pub resources: Resources,
    /// How the system works, and how that is modelled.
    pub mechanism: String,
    /// What came out.
    pub verdict: String,
    /// Numbers of the engine that no datasheet says.
    #[serde(default)]
    pub constants: Entries<Constant>,
    /// The rows that fitted constants were fitted on; they are not scored.
    #[serde(default)]
    pub fitted_on: Vec<Filter>,
    /// The machines, as testbeds: templates.
    #[serde(default)]
    pub machines: BTreeMap<String, Value>,
    /// What the rows' models are: a preset's name, or a mapping as in a `config.json`.
    #[serde(default)]
    pub models: BTreeMap<String, Value>,
    /// Numbers by what a row's cells say: of each column the first pattern that matches, its numbers.
    #[serde(default)]
    pub by: BTreeMap<String, Entries<BTreeMap<String, f64>>>,
    /// Numbers of every row, each from those before it and from its group's.
    #[serde(default, rename = "let")]
    pub numbers: Entries<Expression>,
    /// Runs that groups name.
    #[serde(default)]
    pub runs: BTreeMap<String, Value>,
    /// Metrics, in their rows' units, of groups that do not say theirs.
    #[serde(default)]
    pub ours: BTreeMap<String, Expression>,
    /// How rows are reproduced; the first group that matches a row is its.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Rows that cannot be scored.
    #[serde(default)]
    pub unscored: Vec<Unscored>,
}

/// How many resources limit a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resources {
    /// One: a device and its memory.
    One,
    /// Two or more that work at the same time: CPU and GPU, memories, a link.
    Two,
    /// None: nothing of it is scored.
    None,
}

/// A number of the engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The number.
    pub value: f64,
    /// What it was thought to lie between before any row was looked at.
    pub prior: [f64; 2],
    /// What it is, in which unit, and where the prior is from.
    pub why: String,
    /// Whether it was fitted, on the rows of `fitted_on`.
    #[serde(default)]
    pub fitted: bool,
}

/// How some rows are reproduced.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Which rows.
    pub rows: Filter,
    /// The table that they are ranked in; the metric's where absent.
    #[serde(default)]
    pub table: Option<String>,
    /// Texts that templates use.
    #[serde(default)]
    pub texts: BTreeMap<String, String>,
    /// Further numbers, each from those before it.
    #[serde(default, rename = "let")]
    pub numbers: Entries<Expression>,
    /// What is run, by name: a template, or the name of one of the publication's runs. The results of `run` are called
    /// `ttft`, those of `lia` are called `lia.ttft`.
    #[serde(default)]
    pub runs: Entries<Value>,
    /// The metric, in the row's unit; the publication's for its metric where absent.
    #[serde(default)]
    pub ours: Option<Expression>,
    /// Why the rows are not scored, though they are reproduced.
    #[serde(default)]
    pub unscored: Option<String>,
}

/// Rows that cannot be scored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unscored {
    /// Which rows.
    pub rows: Filter,
    /// Why not.
    pub why: String,
}

impl Publication {
    /// Reads a publication's description. `file` is its name in messages.
    ///
    /// # Errors
    /// Not YAML, an unknown key, a constant outside its prior.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let publication: Self = yaml::read(text, file)?;
        for (name, constant) in &publication.constants.0 {
            let [low, high] = constant.prior;
            if !(low <= constant.value && constant.value <= high) {
                let message = format!("{} is outside of the prior, {low} to {high}", constant.value);
                return Err(yaml::refuse(text, file, &["constants", name, "value"], message));
            }
        }
        Ok(publication)
    }

    /// What every row sees: the constants.
    pub fn scope(&self) -> Scope {
        let mut scope = Scope::default();
        for (name, constant) in &self.constants.0 {
            scope.set(name, constant.value);
        }
        scope
    }

    /// The first group of a row, and the numbers that its filter reads.
    pub fn group_of(&self, row: &PublishedRow) -> Option<(&Group, BTreeMap<String, f64>)> {
        self.groups.iter().find_map(|group| Some((group, group.rows.read(&row.cells)?)))
    }

    /// The numbers that the row's cells stand for ([`Publication::by`]).
    pub fn numbers_by(&self, row: &PublishedRow) -> Vec<(&str, f64)> {
        let of = |(column, choices): (&String, &'_ Entries<BTreeMap<String, f64>>)| -> Option<usize> {
            let cell = row.cells.get(column)?;
            let matches =
                |(text, _): &(String, _)| Pattern::parse(text).is_ok_and(|it| it.read(cell).is_some());
            choices.0.iter().position(matches)
        };
        let found = self.by.iter().filter_map(|it| Some(&it.1.0[of(it)?].1));
        found.flatten().map(|(name, number)| (name.as_str(), *number)).collect()
    }

    /// What is run for a group, by name.
    ///
    /// # Errors
    /// The name of a run that there is not.
    pub fn runs_of<'a>(&'a self, group: &'a Group) -> Result<Vec<(&'a str, &'a Value)>, String> {
        let template = |run: &'a Value| match run {
            Value::String(name) => self.runs.get(name).ok_or_else(|| format!("there is no run '{name}'")),
            template => Ok(template),
        };
        group.runs.0.iter().map(|(name, run)| Ok((name.as_str(), template(run)?))).collect()
    }

    /// What a row's number is of its group's runs.
    ///
    /// # Errors
    /// Nobody says what the metric is.
    pub fn ours_of<'a>(&'a self, group: &'a Group, row: &PublishedRow) -> Result<&'a Expression, String> {
        let own = group.ours.as_ref().or_else(|| self.ours.get(&row.metric));
        own.ok_or_else(|| format!("nobody says what {} is of the runs", row.metric))
    }

    /// Whether constants were fitted on the row.
    pub fn is_fitted_on(&self, row: &PublishedRow) -> bool {
        self.fitted_on.iter().any(|filter| filter.read(&row.cells).is_some())
    }

    /// Why the row cannot be scored, where somebody said so.
    pub fn why_unscored(&self, row: &PublishedRow) -> Option<&str> {
        let unscored = self.unscored.iter().find(|unscored| unscored.rows.read(&row.cells).is_some());
        unscored.map(|unscored| unscored.why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::read_rows;
    use super::*;
    use std::path::Path;

    /// Id, description and rows of what is shipped.
    fn shipped() -> Vec<(String, Publication, Vec<PublishedRow>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("published");
        let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let all =
            files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).map(|path| {
                let id = path.file_stem().expect("a name").to_string_lossy().into_owned();
                let read = |path: &Path| std::fs::read_to_string(path).expect("a text");
                let publication = Publication::from_yaml(&read(&path), &id).expect("a publication");
                let rows = read_rows(&read(&path.with_extension("csv")), &id).expect("rows");
                (id, publication, rows)
            });
        all.collect()
    }

    #[test]
    fn each_row_is_accounted_for_and_something_is_held_out() {
        assert!(shipped().len() > 30);
        for (id, publication, rows) in shipped() {
            for row in &rows {
                let known = publication.group_of(row).is_some() || publication.why_unscored(row).is_some();
                assert!(known, "{id}: nobody says how {} is reproduced, or why not", row.id);
            }
            let fitted = publication.constants.0.iter().any(|(_, constant)| constant.fitted);
            let on = rows.iter().filter(|row| publication.is_fitted_on(row)).count();
            assert_eq!(fitted, on > 0, "{id}: constants are fitted on a stated part of the rows");
            assert!(on < rows.len(), "{id}: something is held out");
        }
    }

    #[test]
    fn filters_name_columns_that_rows_have() {
        for (id, publication, rows) in shipped() {
            let filters = publication.groups.iter().map(|group| &group.rows).chain(&publication.fitted_on);
            let filters = filters.chain(publication.unscored.iter().map(|it| &it.rows));
            for column in filters.flat_map(Filter::columns).chain(publication.by.keys().map(String::as_str)) {
                assert!(rows[0].cells.contains_key(column), "{id}: there is no column '{column}'");
            }
        }
    }

    #[test]
    fn a_constant_outside_of_its_prior_is_refused_with_its_line() {
        let text = "system: s\nsource: s\nlicence: l\nresources: one\nmechanism: m\nverdict: v\n\
                    constants:\n  rate: {value: 3, prior: [1, 2], why: because}\n";
        let error = Publication::from_yaml(text, "s.yaml").expect_err("outside").to_string();
        assert!(error.starts_with("s.yaml:8:") && error.contains("1 to 2"), "{error}");
    }
}
