//! One row of CSV as text.

/// The text on one line: line ends and the blanks around them become single blanks.
pub(crate) fn one_line(text: &str) -> String {
    match text.contains(['\n', '\r']) {
        true => text.split_whitespace().collect::<Vec<_>>().join(" "),
        false => text.to_owned(),
    }
}

/// The text as a cell, in quotes where it needs them.
pub(crate) fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The cells of a row that was joined from [`quoted`] texts.
pub(crate) fn cells(row: &str) -> Vec<String> {
    let (mut cells, mut cell, mut within) = (Vec::new(), String::new(), false);
    let mut rest = row.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if within && rest.peek() == Some(&'"') => {
                rest.next();
                cell.push('"');
            }
            '"' => within = !within,
            ',' if !within => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_the_texts_that_were_quoted() {
        let texts = ["", "plain", "a, b", "say \"so\"", " blank ", ",", "\""];
        let row = texts.map(quoted).join(",");
        assert_eq!(cells(&row), texts);
        assert_eq!(one_line("two\n  lines\r\n"), "two lines");
    }
}
