//! Reports as files: the page, and every plot as SVG or PNG.

use crate::page::html;
use crate::report::Report;
use crate::results::error::ReportError;
use crate::results::validation::Validation;
use hwprofiles::write_atomically;
use std::path::Path;

impl Report {
    /// The text of the page.
    ///
    /// # Errors
    /// A mistake in a template of this crate.
    pub fn to_html(&self) -> Result<String, ReportError> {
        html::render(&self.sections(), self.provenance().as_ref())
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
            write_atomically(path, crate::drawing::png::png(&text)?)?;
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
