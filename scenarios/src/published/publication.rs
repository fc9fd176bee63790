//! One publication: its constants, and how its rows are reproduced.
//!
//! A publication is two files with the same name. The `.csv` has the rows as they were published,
//! each with its source. The `.yaml` says which runs, of which machine and model, stand for a group
//! of rows, and which expression over their results is the published metric. It is data only: a new
//! system needs no code. The shipped publications are in this crate's folder `published`, and in
//! the program.
//!
//! Texts may contain `${…}`: an [`Expression`] over the row's numbers (its columns, and the numbers
//! that a [`Filter`] reads from them) and the publication's constants.

use super::expression::Expression;
use super::pattern::{Filter, NamePattern};
use super::rows::PublishedRow;
use super::scope::Scope;
use hwprofiles::FileError;
use hwprofiles::yaml::{self, Entries};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The published results of one system, and how they are reproduced.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// The system's name.
    pub system: String,
    /// Where its results were published.
    pub source: String,
    /// The licence under which the results are included here.
    pub licence: String,
    /// How many resources limit the system; the accepted error depends on it.
    pub resources: Resources,
    /// How the system works, and how it is modelled.
    pub mechanism: String,
    /// The result of the comparison.
    pub verdict: String,
    /// Numbers of the engine that are in no datasheet.
    #[serde(default)]
    pub constants: Entries<Constant>,
    /// The rows on which constants were fitted; they are not scored.
    #[serde(default)]
    pub fitted_on: Vec<Filter>,
    /// Templates of the machines.
    #[serde(default)]
    pub machines: BTreeMap<String, Value>,
    /// The models of the rows: each a preset's name, or a mapping like a `config.json`.
    #[serde(default)]
    pub models: BTreeMap<String, Value>,
    /// Numbers for texts in cells: for each column, patterns with the numbers of the rows that
    /// match. The first matching pattern of a column counts.
    #[serde(default, rename = "by")]
    pub cell_numbers: BTreeMap<String, Entries<BTreeMap<String, f64>>>,
    /// Further numbers of every row; each may use those before it and those of its group.
    #[serde(default, rename = "let")]
    pub numbers: Entries<Expression>,
    /// Templates of runs that groups refer to by name.
    #[serde(default)]
    pub runs: BTreeMap<String, Value>,
    /// Expressions for metrics, in the rows' units, for groups without their own.
    #[serde(default, rename = "ours")]
    pub metrics: BTreeMap<String, Expression>,
    /// How rows are reproduced; the first group that matches a row applies.
    #[serde(default)]
    pub groups: Vec<RowGroup>,
    /// Rows that cannot be scored.
    #[serde(default)]
    pub unscored: Vec<Unscored>,
}

/// How many resources limit a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resources {
    /// One resource: a device and its memory.
    One,
    /// Two or more resources that work at the same time: CPU and GPU, memories, a link.
    Two,
    /// No resource: no row is scored.
    None,
}

/// A number of the engine that is in no datasheet.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The number.
    pub value: f64,
    /// The range that was expected before any row was compared.
    pub prior: [f64; 2],
    /// Its meaning and unit, and the source of the prior.
    pub why: String,
    /// Whether it was fitted on the rows of `fitted_on`.
    #[serde(default)]
    pub fitted: bool,
}

/// How a group of rows is reproduced.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowGroup {
    /// The rows.
    pub rows: Filter,
    /// The table in which the rows are ranked; by default that of the metric.
    #[serde(default)]
    pub table: Option<String>,
    /// Texts for templates.
    #[serde(default)]
    pub texts: BTreeMap<String, String>,
    /// Further numbers; each may use those before it.
    #[serde(default, rename = "let")]
    pub numbers: Entries<Expression>,
    /// The runs by name: each a template, or the name of one of the publication's runs. Results of
    /// the run called `run` have names like `ttft`, those of a run called `lia` names like
    /// `lia.ttft`.
    #[serde(default)]
    pub runs: Entries<Value>,
    /// The expression for the metric, in the row's unit; by default the publication's.
    #[serde(default, rename = "ours")]
    pub metric: Option<Expression>,
    /// The reason why the rows are reproduced but not scored.
    #[serde(default)]
    pub unscored: Option<String>,
}

/// Rows that cannot be scored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unscored {
    /// The rows.
    pub rows: Filter,
    /// The reason.
    pub why: String,
}

impl Publication {
    /// Reads a publication's YAML. `file` is its name in messages.
    ///
    /// # Errors
    /// The text is not YAML, a key is unknown, or a constant is outside of its prior.
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

    /// The names that every row may use: the constants.
    pub fn scope(&self) -> Scope {
        let mut scope = Scope::default();
        for (name, constant) in &self.constants.0 {
            scope.set(name, constant.value);
        }
        scope
    }

    /// The group that applies to a row, and the numbers that its filter reads from the row.
    pub fn group_of(&self, row: &PublishedRow) -> Option<(&RowGroup, BTreeMap<String, f64>)> {
        self.groups.iter().find_map(|group| Some((group, group.rows.read(&row.cells)?)))
    }

    /// The numbers that [`Publication::cell_numbers`] gives for the row's cells.
    pub fn numbers_from_cells(&self, row: &PublishedRow) -> Vec<(&str, f64)> {
        let numbers = self.cell_numbers.iter().filter_map(|(column, choices)| {
            let cell = row.cells.get(column)?;
            let matches = |text: &str| NamePattern::parse(text).is_ok_and(|it| it.read(cell).is_some());
            choices.0.iter().find(|(text, _)| matches(text)).map(|(_, numbers)| numbers)
        });
        numbers.flatten().map(|(name, number)| (name.as_str(), *number)).collect()
    }

    /// The templates of a group's runs, by name.
    ///
    /// # Errors
    /// The group names a run that does not exist.
    pub fn runs_of<'a>(&'a self, group: &'a RowGroup) -> Result<Vec<(&'a str, &'a Value)>, String> {
        let template = |run: &'a Value| match run {
            Value::String(name) => self.runs.get(name).ok_or_else(|| format!("there is no run '{name}'")),
            template => Ok(template),
        };
        group.runs.0.iter().map(|(name, run)| Ok((name.as_str(), template(run)?))).collect()
    }

    /// The expression that gives the row's metric from its group's runs.
    ///
    /// # Errors
    /// Neither the group nor the publication has an expression for the metric.
    pub fn metric_of<'a>(
        &'a self,
        group: &'a RowGroup,
        row: &PublishedRow,
    ) -> Result<&'a Expression, String> {
        let own = group.metric.as_ref().or_else(|| self.metrics.get(&row.metric));
        own.ok_or_else(|| format!("no expression gives {} from the runs", row.metric))
    }

    /// Whether constants were fitted on this row.
    pub fn is_fitted_on(&self, row: &PublishedRow) -> bool {
        self.fitted_on.iter().any(|filter| filter.read(&row.cells).is_some())
    }

    /// The reason why the row cannot be scored, if the publication gives one.
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

    /// Id, description and rows of every shipped publication.
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
    fn each_row_has_a_group_or_a_reason_and_some_rows_are_held_out() {
        assert!(shipped().len() > 30);
        for (id, publication, rows) in shipped() {
            for row in &rows {
                let known = publication.group_of(row).is_some() || publication.why_unscored(row).is_some();
                assert!(known, "{id}: {} has no group and no reason", row.id);
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
            for column in
                filters.flat_map(Filter::columns).chain(publication.cell_numbers.keys().map(String::as_str))
            {
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
