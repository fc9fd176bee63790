//! Texts for terminals, documents and spreadsheets.

/// Cuts `name` to at most `width` columns.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    // A line break or a tab in a name would break the table.
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match name.chars().count() {
        length if length <= width => name,
        _ => name.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// Escapes a name for a Markdown table.
pub(crate) fn markdown(name: &str) -> String {
    let special = |c: char| "\\`*_{}[]<>()#!|&".contains(c);
    let escape =
        |c: char| if special(c) { vec!['\\', c] } else { vec![if c.is_control() { ' ' } else { c }] };
    name.chars().flat_map(escape).collect()
}

/// A CSV text. `header` holds the names of the columns, separated by spaces.
pub(crate) fn csv_text(header: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let header = header.split_whitespace().map(str::to_owned).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in std::iter::once(header).chain(rows) {
        writer.write_record(row).expect("rows have equal lengths, and writing to memory cannot fail");
    }
    let bytes = writer.into_inner().expect("writing to memory cannot fail");
    String::from_utf8(bytes).expect("CSV of texts is UTF-8")
}
