//! `report.html`: one file that needs nothing else, no network and, without tables to look around in, no script.

use crate::block::Block;
use crate::error::ReportError;
use crate::explorer::base64;
use crate::report::Report;
use crate::svg::STYLE;
use crate::validation::Validation;
use hwprofiles::write_atomically;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use sha2::{Digest, Sha256};
use std::path::Path;

/// What makes tables explorable.
const SCRIPT: &str = include_str!("../templates/explorer.js");

impl Report {
    /// The text of the page.
    ///
    /// # Errors
    /// A mistake in a template of ours.
    pub fn to_html(&self) -> Result<String, ReportError> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.add_template("report.html", include_str!("../templates/report.html"))?;
        let safe = Value::from_safe_string;
        let sections = self.sections();
        let title = match &sections[..] {
            [only] => only.title.clone(),
            several => format!("{} results", several.len()),
        };
        let explores = |block: &Block| matches!(block, Block::Explorer(_));
        let script = sections.iter().any(|it| it.blocks.iter().any(explores)).then_some(SCRIPT);
        // Whatever else got onto the page would not run: the browser is told which script may.
        let hash = script.map(|script| base64(&Sha256::digest(script)));
        let sections = sections.iter().map(|section| {
            let blocks = section.blocks.iter().map(Block::context);
            let headings = section.blocks.iter().filter_map(|block| match block {
                Block::Heading(text) => Some(Value::from(text.as_str())),
                _ => None,
            });
            context! {
                title => section.title.as_str(),
                lead => section.lead.as_str(),
                headings => headings.collect::<Vec<_>>(),
                blocks => blocks.collect::<Vec<_>>(),
            }
        });
        let page = environment.get_template("report.html")?.render(context! {
            title,
            style => safe(format!("{STYLE}{}", include_str!("../templates/report.css"))),
            sections => sections.collect::<Vec<_>>(),
            provenance => self.provenance().map(|block| block.context()),
            script => script.map(|it| safe(it.to_owned())),
            hash,
        })?;
        Ok(page)
    }

    /// Writes the page, whole or not at all.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        Ok(write_atomically(path, self.to_html()?)?)
    }

    /// Writes every plot into `folder`.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub fn write_plots(&self, folder: impl AsRef<Path>) -> Result<(), ReportError> {
        for (name, text) in self.plots() {
            write_atomically(folder.as_ref().join(name), text)?;
        }
        Ok(())
    }

    /// Writes every plot as a picture of pixels (PNG) into `folder`.
    ///
    /// # Errors
    /// A path that cannot be written; a plot too large for a picture.
    pub fn write_pictures(&self, folder: impl AsRef<Path>) -> Result<(), ReportError> {
        for (name, text) in self.plots() {
            let path = folder.as_ref().join(name).with_extension("png");
            write_atomically(path, crate::picture::png(&text)?)?;
        }
        Ok(())
    }
}

impl Validation {
    /// The text of `report.html`.
    pub fn to_html(&self) -> Result<String, ReportError> {
        Report::from(self.clone()).to_html()
    }

    /// Writes `report.html`, whole or not at all.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        Report::from(self.clone()).write_html(path)
    }

    /// Every plot as a file: (name, text of an SVG that needs nothing else).
    pub fn plots(&self) -> Vec<(String, String)> {
        Report::from(self.clone()).plots()
    }

    /// Writes every plot into `folder`.
    pub fn write_plots(&self, folder: impl AsRef<Path>) -> Result<(), ReportError> {
        Report::from(self.clone()).write_plots(folder)
    }
}
