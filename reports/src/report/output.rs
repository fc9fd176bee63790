//! Reports as files: the page, and every plot as SVG or PNG.

use crate::page::html;
#[cfg(not(target_arch = "wasm32"))]
use crate::plots::drawing::png::Picture;
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

    /// Every plot as a self-contained SVG file: its name and its text. With several results, the
    /// name starts with the number of the result.
    pub fn plots(&self) -> Vec<(String, String)> {
        let drawings = self.drawings().into_iter();
        drawings.map(|(name, drawing)| (format!("{name}.svg"), drawing.standalone())).collect()
    }

    /// Writes every plot as SVG into `folder`.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub fn write_plots(&self, folder: impl AsRef<Path>) -> Result<(), ReportError> {
        for (name, text) in self.plots() {
            write_atomically(folder.as_ref().join(name), text)?;
        }
        Ok(())
    }

    /// Writes every plot as a PNG into `folder`.
    ///
    /// # Errors
    /// A path that cannot be written; a plot that is too large for a picture.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn write_pictures(&self, folder: impl AsRef<Path>) -> Result<(), ReportError> {
        for (name, drawing) in self.drawings() {
            let path = folder.as_ref().join(format!("{name}.png"));
            let written = Picture::paint(&drawing).and_then(|picture| picture.write(&path));
            written.map_err(|reason| ReportError::Picture { path, reason })?;
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

    /// Every plot as a self-contained SVG file: its name and its text.
    pub fn plots(&self) -> Vec<(String, String)> {
        Report::from(self.clone()).plots()
    }

    /// Writes every plot into `folder`.
    pub fn write_plots(&self, folder: impl AsRef<Path>) -> Result<(), ReportError> {
        Report::from(self.clone()).write_plots(folder)
    }
}
