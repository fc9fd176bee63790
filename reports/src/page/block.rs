//! The content of a page: headings, texts, tables and drawings, in order. Texts here are plain;
//! only the template makes markup, and it escapes every text.

use crate::page::explorer::Explorer;
use crate::plots::drawing::marks::Drawing;
use minijinja::context;
use minijinja::value::Value;

/// One block of a section.
#[derive(Debug, Clone)]
pub(crate) enum PageBlock {
    /// A heading one level below the section's title.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A paragraph that stands out.
    Note(String),
    /// The most important numbers.
    Tiles(Vec<NumberTile>),
    /// Drawings, side by side where there is room.
    Plots(Vec<Plot>),
    /// A table.
    Table(Table),
    /// Tables that are folded away, or open.
    Details { summary: String, open: bool, tables: Vec<Table> },
    /// Commands for a terminal.
    Commands(Vec<String>),
    /// A text in columns of its own that is folded away.
    Folded { summary: String, text: String },
    /// Terms and their explanations.
    Words(&'static [(&'static str, &'static str)]),
    /// A table that readers can explore.
    Explorer(Box<Explorer>),
}

/// A large number with a name.
#[derive(Debug, Clone)]
pub(crate) struct NumberTile {
    /// What the number is.
    pub name: String,
    /// The number, as text.
    pub value: String,
    /// Further lines below the number.
    pub lines: Vec<String>,
}

/// A drawing.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// The name of its file without an ending, unique in its section.
    pub name: String,
    /// The drawing itself.
    pub drawing: Drawing,
    /// Whether it may be scaled down.
    pub fits: bool,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// Describes the table to readers who do not see it.
    pub label: String,
    /// Explains how to read the table.
    pub caption: String,
    /// The columns.
    pub columns: Vec<TableColumn>,
    /// The rows, each as long as the list of columns.
    pub rows: Vec<Vec<TableCell>>,
}

/// A column: its name and the class of its cells.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    name: String,
    class: &'static str,
}

/// A cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableCell {
    /// The text of the cell.
    pub text: String,
    /// Whether the cell is marked as unusual.
    pub unusual: bool,
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self { text, unusual: false }
    }
}

impl From<&str> for TableCell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl TableColumn {
    /// A column with the names of the rows.
    pub(crate) fn name(name: &str) -> Self {
        Self { name: name.to_owned(), class: "name" }
    }

    /// A column of words.
    pub(crate) fn text(name: &str) -> Self {
        Self { name: name.to_owned(), class: "text" }
    }

    /// A column of sentences.
    pub(crate) fn wide(name: &str) -> Self {
        Self { name: name.to_owned(), class: "wide" }
    }

    /// A column of numbers.
    pub(crate) fn number(name: &str) -> Self {
        Self { name: name.to_owned(), class: "number" }
    }
}

impl NumberTile {
    pub(crate) fn new(name: &str, value: String) -> Self {
        Self { name: name.to_owned(), value, lines: vec![] }
    }
}

impl Plot {
    /// A drawing that may be scaled down.
    pub(crate) fn fitting(name: impl Into<String>, drawing: Drawing) -> Self {
        Self { name: name.into(), drawing, fits: true }
    }

    /// A drawing that keeps its size.
    pub(crate) fn wide(name: impl Into<String>, drawing: Drawing) -> Self {
        Self { name: name.into(), drawing, fits: false }
    }
}

impl PageBlock {
    /// A block of one drawing that keeps its size.
    pub(crate) fn wide(name: impl Into<String>, drawing: Drawing) -> Self {
        Self::Plots(vec![Plot::wide(name, drawing)])
    }

    /// Whether a drawing of it shows time.
    pub(crate) fn shows_time(&self) -> bool {
        matches!(self, Self::Plots(plots) if plots.iter().any(|plot| plot.drawing.time().is_some()))
    }

    /// The block as data for the template.
    pub(crate) fn context(&self) -> Value {
        match self {
            Self::Heading(text) => context! { kind => "heading", text },
            Self::Text(text) => context! { kind => "text", text },
            Self::Note(text) => context! { kind => "note", text },
            Self::Tiles(tiles) => {
                let tile = |tile: &NumberTile| {
                    context! { name => tile.name.as_str(), value => tile.value.as_str(), lines => tile.lines.clone() }
                };
                context! { kind => "tiles", tiles => tiles.iter().map(tile).collect::<Vec<_>>() }
            }
            Self::Plots(plots) => {
                let plot = |plot: &Plot| {
                    let drawing = Value::from_safe_string(plot.drawing.inline());
                    context! { label => plot.drawing.title(), fits => plot.fits, drawing }
                };
                context! { kind => "plots", plots => plots.iter().map(plot).collect::<Vec<_>>() }
            }
            Self::Table(table) => context! { kind => "table", table => table.context() },
            Self::Details { summary, open, tables } => {
                let tables: Vec<_> = tables.iter().map(Table::context).collect();
                context! { kind => "details", summary, open, tables }
            }
            Self::Commands(lines) => context! { kind => "commands", lines },
            Self::Folded { summary, text } => context! { kind => "folded", summary, text },
            Self::Words(words) => context! { kind => "words", words => words.to_vec() },
            Self::Explorer(explorer) => {
                context! { kind => "explorer", label => explorer.label.as_str(), data => explorer.data(), notes => explorer.notes() }
            }
        }
    }
}

impl Table {
    fn context(&self) -> Value {
        let columns = self
            .columns
            .iter()
            .map(|column| context! { name => column.name.as_str(), class => column.class });
        let cell = |(cell, column): (&TableCell, &TableColumn)| {
            context! { text => cell.text.as_str(), class => column.class, off => cell.unusual }
        };
        let rows = self.rows.iter().map(|row| row.iter().zip(&self.columns).map(cell).collect::<Vec<_>>());
        context! {
            label => self.label.as_str(),
            caption => self.caption.as_str(),
            columns => columns.collect::<Vec<_>>(),
            rows => rows.collect::<Vec<_>>(),
        }
    }
}
