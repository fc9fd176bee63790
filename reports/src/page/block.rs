//! What a page is made of: headings, words, tables and drawings, in order. Texts are plain texts here; only the
//! template makes markup of them, and it escapes every one.

use crate::drawing::marks::Drawing;
use crate::page::explorer::Explorer;
use minijinja::context;
use minijinja::value::Value;

/// One piece of a section.
#[derive(Debug, Clone)]
pub(crate) enum PageBlock {
    /// A heading below the section's.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A paragraph that must not be overlooked.
    Note(String),
    /// The most important numbers.
    Tiles(Vec<NumberTile>),
    /// Drawings, side by side where there is room.
    Plots(Vec<Plot>),
    /// A table.
    Table(Table),
    /// Tables that are shown on request, or at once.
    Details { summary: String, open: bool, tables: Vec<Table> },
    /// Lines for a terminal.
    Commands(Vec<String>),
    /// Words and what they mean.
    Words(&'static [(&'static str, &'static str)]),
    /// A table to look around in.
    Explorer(Box<Explorer>),
}

/// A number, large.
#[derive(Debug, Clone)]
pub(crate) struct NumberTile {
    /// What it is.
    pub name: String,
    /// The number.
    pub value: String,
    /// What else there is to say of it.
    pub lines: Vec<String>,
}

/// A drawing.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// The name of its file, without an ending; unique in its section.
    pub name: String,
    /// What is drawn.
    pub drawing: Drawing,
    /// Whether it may be made smaller than it is.
    pub fits: bool,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// What it holds, for readers who do not see it.
    pub label: String,
    /// What one must know to read it.
    pub caption: String,
    /// The columns.
    pub columns: Vec<TableColumn>,
    /// The rows, as long as there are columns.
    pub rows: Vec<Vec<TableCell>>,
}

/// A column.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    name: String,
    class: &'static str,
}

/// A cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableCell {
    /// What stands in it.
    pub text: String,
    /// Whether it is worth a second look.
    pub off: bool,
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self { text, off: false }
    }
}

impl From<&str> for TableCell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl TableColumn {
    /// What its rows are called.
    pub(crate) fn name(name: &str) -> Self {
        Self { name: name.to_owned(), class: "name" }
    }

    /// Words.
    pub(crate) fn text(name: &str) -> Self {
        Self { name: name.to_owned(), class: "text" }
    }

    /// Sentences.
    pub(crate) fn wide(name: &str) -> Self {
        Self { name: name.to_owned(), class: "wide" }
    }

    /// Numbers.
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
    /// A drawing that may be made smaller than it is.
    pub(crate) fn fitting(name: impl Into<String>, drawing: Drawing) -> Self {
        Self { name: name.into(), drawing, fits: true }
    }

    /// A drawing that is read at its own size.
    pub(crate) fn wide(name: impl Into<String>, drawing: Drawing) -> Self {
        Self { name: name.into(), drawing, fits: false }
    }
}

impl PageBlock {
    /// One drawing that is read at its own size.
    pub(crate) fn wide(name: impl Into<String>, drawing: Drawing) -> Self {
        Self::Plots(vec![Plot::wide(name, drawing)])
    }

    /// For the template.
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
            context! { text => cell.text.as_str(), class => column.class, off => cell.off }
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
