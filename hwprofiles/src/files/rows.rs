//! Rows of a CSV file, each with its bytes, its cells and its line.
//!
//! A row keeps its own text. A table to which columns are added therefore stays the same byte for
//! byte, with its quotes and line ends. Lines are counted as an editor counts them. The `csv` crate
//! does neither: it drops the quotes, and its line numbers are too low after a blank line or a
//! CRLF.

use std::fmt::Display;
use std::io::BufRead;
use std::ops::{Range, RangeInclusive};

/// Something wrong in a table: where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", prefix(column))]
pub struct RowsError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column's name; empty for the whole line.
    pub column: String,
    /// What is wrong and what would be right.
    pub message: String,
}

fn prefix(column: &str) -> String {
    if column.is_empty() { String::new() } else { format!("{column}: ") }
}

const UTF_8_MARK: &[u8] = b"\xEF\xBB\xBF";

const UTF_16_MARKS: [&[u8]; 2] = [b"\xFF\xFE", b"\xFE\xFF"];

/// A CSV file with a header: cells by column name, one row at a time.
///
/// Commas separate cells; a cell in double quotes may hold commas, line ends and doubled quotes.
/// Blank lines are skipped. A byte order mark is allowed. Lines end in LF or CRLF.
#[derive(Debug)]
pub struct TableRows<R> {
    reader: R,
    file: String,
    names: Vec<String>,
    header_line: u64,
    /// The line of the row and of the next one, from 1.
    line: u64,
    next_line: u64,
    text: Vec<u8>,
    cells: Vec<Range<usize>>,
}

impl<R: BufRead> TableRows<R> {
    /// Reads the header. `file` is the name in messages. Refuses a file without one, and UTF-16.
    pub fn new(reader: R, file: &str) -> Result<Self, RowsError> {
        let (names, text, cells) = (Vec::new(), Vec::new(), Vec::new());
        let mut rows =
            Self { reader, file: file.to_owned(), names, header_line: 1, line: 1, next_line: 1, text, cells };
        if !rows.read()? {
            let message = "the file is empty: its first line must name the columns".to_owned();
            return Err(rows.refuse_line(message));
        }
        if UTF_16_MARKS.iter().any(|mark| rows.text.starts_with(mark)) {
            return Err(rows.refuse_line("this is UTF-16: save it as UTF-8".to_owned()));
        }
        rows.names = rows.cells.iter().map(|cell| name_of(&rows.text[cell.clone()])).collect();
        rows.header_line = rows.line;
        Ok(rows)
    }

    /// The names of the columns, in lower case.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The file, as the user named it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The index of the column called `name` (in lower case). Refuses a name that the header holds
    /// twice.
    pub fn column(&self, name: &str) -> Result<Option<usize>, RowsError> {
        let mut found = (0..self.names.len()).filter(|&index| self.names[index] == name);
        match (found.next(), found.next()) {
            (first, None) => Ok(first),
            _ => Err(self.refuse_header(name, "two columns have this name: rename or drop one".to_owned())),
        }
    }

    /// The indices of the columns `names` (in lower case). Refuses a header that lacks one.
    pub fn columns<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N], RowsError> {
        let mut found = [0; N];
        for (place, name) in found.iter_mut().zip(names) {
            let missing = || {
                let message = format!("there is no such column: the header must name {}", names.join(", "));
                self.refuse_header(name, message)
            };
            *place = self.column(name)?.ok_or_else(missing)?;
        }
        Ok(found)
    }

    /// The row's cell in `column` as a number. Refuses one that is not in `range`.
    pub fn number(&self, column: usize, range: RangeInclusive<f64>) -> Result<f64, RowsError> {
        let number = std::str::from_utf8(self.cell(column)).ok().and_then(|cell| cell.parse().ok());
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let (from, until) = (range.start(), range.end());
            self.refuse(column, format!("'{}' is not a number from {from} to {until}", self.shown(column)))
        })
    }

    /// Goes to the next row; `false` after the last.
    ///
    /// Refuses a row with more or fewer cells than the header, and a quoted cell without a closing
    /// quote.
    pub fn advance(&mut self) -> Result<bool, RowsError> {
        if !self.read()? {
            return Ok(false);
        }
        if self.cells.len() != self.names.len() {
            let (have, want) = (self.cells.len(), self.names.len());
            let message =
                format!("the header names {want} columns, but this row has {have} {}", plural(have, "cell"));
            return Err(self.refuse_line(message));
        }
        Ok(true)
    }

    /// The row's text without its line end; before the first row, the header's text.
    pub fn text(&self) -> &[u8] {
        &self.text[..self.text.len() - self.line_end().len()]
    }

    /// What ends the row: LF, CRLF, or nothing at the end of a file.
    pub fn line_end(&self) -> &'static str {
        match self.text.as_slice() {
            [.., b'\r', b'\n'] => "\r\n",
            [.., b'\n'] => "\n",
            _ => "",
        }
    }

    /// The row's line, from 1. A row whose quoted cell spans lines has the number of its first
    /// line.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The row's cell in a column that [`TableRows::column`] gave, without the quotes and blanks
    /// around it.
    pub fn cell(&self, column: usize) -> &[u8] {
        self.cells.get(column).map_or(&[], |cell| self.text[cell.clone()].trim_ascii())
    }

    /// The cell as text, for messages.
    pub fn shown(&self, column: usize) -> String {
        /// A longer text would hide the message.
        const MOST: usize = 40;
        let text = String::from_utf8_lossy(self.cell(column));
        let shown: String = text.chars().take(MOST).collect();
        let text = if shown.len() < text.len() { format!("{shown}…") } else { shown };
        text.escape_debug().to_string()
    }

    /// The error for a cell of the row.
    pub fn refuse(&self, column: usize, message: impl Display) -> RowsError {
        let name = self.names.get(column).cloned().unwrap_or_default();
        self.error(self.line, name, message)
    }

    /// The error for the whole row.
    pub fn refuse_line(&self, message: impl Display) -> RowsError {
        self.error(self.line, String::new(), message)
    }

    /// The error for the header, or for its column `name`.
    pub fn refuse_header(&self, name: &str, message: impl Display) -> RowsError {
        self.error(self.header_line, name.to_owned(), message)
    }

    fn error(&self, line: u64, column: String, message: impl Display) -> RowsError {
        RowsError { file: self.file.clone(), line, column, message: message.to_string() }
    }

    /// Reads the next row that is not blank, whatever its number of cells; `false` at the end.
    fn read(&mut self) -> Result<bool, RowsError> {
        loop {
            self.text.clear();
            self.line = self.next_line;
            if !self.read_line()? {
                return Ok(false);
            }
            if !self.text().is_empty() {
                break;
            }
        }
        while !self.split()? {
            if !self.read_line()? {
                let message = "a quote opens a cell and none closes it before the file ends";
                return Err(self.refuse_line(message));
            }
        }
        Ok(true)
    }

    /// Appends one line to the text.
    fn read_line(&mut self) -> Result<bool, RowsError> {
        match self.reader.read_until(b'\n', &mut self.text) {
            Ok(0) => Ok(false),
            Ok(_) => {
                self.next_line += 1;
                Ok(true)
            }
            Err(reason) => Err(self.refuse_line(format!("cannot be read: {reason}"))),
        }
    }

    /// Finds the cells of the text; `false` where it ends inside quotes.
    fn split(&mut self) -> Result<bool, RowsError> {
        self.cells.clear();
        let text = &self.text[..self.text.len() - self.line_end().len()];
        let mark = if self.names.is_empty() && text.starts_with(UTF_8_MARK) { UTF_8_MARK.len() } else { 0 };
        let mut start = mark;
        loop {
            let end = match text.get(start) {
                Some(b'"') => match closing(&self.text, start + 1) {
                    None => return Ok(false),
                    Some(close) => {
                        self.cells.push(start + 1..close);
                        close + 1
                    }
                },
                _ => {
                    let length = text[start..].iter().position(|&byte| byte == b',');
                    let end = length.map_or(text.len(), |length| start + length);
                    self.cells.push(start..end);
                    end
                }
            };
            match text.get(end) {
                None => return Ok(true),
                Some(b',') => start = end + 1,
                Some(_) => {
                    let message = "behind a closing quote only a comma may follow: write \"\" for a quote";
                    return Err(self.refuse_line(message));
                }
            }
        }
    }
}

/// The index of the closing quote of a cell whose text begins at `start`. Two quotes in a row stand
/// for one quote in the text.
fn closing(text: &[u8], mut start: usize) -> Option<usize> {
    loop {
        let quote = start + text.get(start..)?.iter().position(|&byte| byte == b'"')?;
        match text.get(quote + 1) {
            Some(b'"') => start = quote + 2,
            _ => return Some(quote),
        }
    }
}

fn name_of(cell: &[u8]) -> String {
    String::from_utf8_lossy(cell).trim().to_lowercase()
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}
