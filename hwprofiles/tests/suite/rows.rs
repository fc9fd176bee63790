//! Rows of CSV files: what is read, and what is refused.

use hwprofiles::TableRows;
use proptest::prelude::*;

/// Line and cells of every row, or the error.
fn read(text: &[u8]) -> Result<Vec<(u64, Vec<String>)>, String> {
    let mut rows = TableRows::new(text, "t.csv").map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    while rows.advance().map_err(|e| e.to_string())? {
        let cells = (0..rows.names().len()).map(|i| String::from_utf8_lossy(rows.cell(i)).into_owned());
        all.push((rows.line(), cells.collect()));
    }
    Ok(all)
}

fn row(line: u64, cells: &[&str]) -> (u64, Vec<String>) {
    (line, cells.iter().map(|&c| c.to_owned()).collect())
}

#[test]
fn lines_are_counted_as_an_editor_counts_them() {
    let two = [row(2, &["1", "2"]), row(4, &["3", "4"])];
    assert_eq!(read(b"a,b\n1,2\n\n3,4\n").unwrap(), two);
    assert_eq!(read(b"a,b\r\n1,2\r\n\r\n3,4").unwrap(), two);
    assert_eq!(read(b"a,b\n\"1\n\",2\n3,4\n").unwrap(), two);
    assert_eq!(read(b"\xEF\xBB\xBFa,b\n 1 ,\"2\"\n\n3,4\n").unwrap(), two);
}

#[test]
fn quotes_hold_commas_line_ends_and_doubled_quotes() {
    assert_eq!(read(b"a,b\n\"1,\"\"x\n\",\n").unwrap(), [row(2, &["1,\"\"x", ""])]);
    assert_eq!(read(b"a,b\n,\"\"\n").unwrap(), [row(2, &["", ""])]);
}

#[test]
fn what_is_no_table_is_refused_with_its_line() {
    for (text, words) in [
        (&b""[..], "t.csv:1: the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"\xFF\xFEa\0", "t.csv:1: this is UTF-16"),
        (b"a,b\n1\n", "t.csv:2: the header names 2 columns, but this row has 1 cell"),
        (b"a,b\r\n1,2\r\n1,2,3\r\n", "t.csv:3: the header names 2 columns, but this row has 3 cells"),
        (b"a,b\n1,\"2\n", "t.csv:2: a quote opens"),
        (b"a,b\n1,\"2\"3\n", "t.csv:2: behind a closing quote"),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_column_that_stands_there_twice_is_refused_only_where_it_is_asked_for() {
    let rows = TableRows::new(&b"x, M ,x\n"[..], "t.csv").unwrap();
    assert_eq!((rows.column("m"), rows.column("n")), (Ok(Some(1)), Ok(None)));
    assert_eq!(
        rows.column("x").unwrap_err().to_string(),
        "t.csv:1: x: two columns have this name: rename or drop one"
    );
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn no_bytes_make_it_panic_and_what_is_read_is_the_file_without_its_blank_lines(
        text in prop::collection::vec(prop::sample::select(&b"ab,\"\r\n \xEF\xBB\xBF"[..]), 0..60),
    ) {
        let Ok(mut rows) = TableRows::new(&text[..], "t.csv") else { return Ok(()) };
        let mut again = [rows.text(), rows.line_end().as_bytes()].concat();
        while let Ok(true) = rows.advance() {
            again.extend(rows.text());
            again.extend(rows.line_end().as_bytes());
        }
        // Every byte comes back in order, except the line ends of blank lines.
        let mut rest = text.iter();
        let passed_over = |byte: &u8| b"\r\n".contains(byte);
        for byte in again {
            prop_assert!(rest.by_ref().find(|&&other| other == byte || !passed_over(&other)) == Some(&byte));
        }
    }

    #[test]
    fn cells_that_were_written_are_read_back(
        table in prop::collection::vec(prop::collection::vec("[a-z,\"\n]{0,5}", 3..=3), 1..6),
    ) {
        let quoted = |row: &Vec<String>| {
            let cells: Vec<_> = row.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
            cells.join(",") + "\n"
        };
        let text = "x,y,z\n".to_owned() + &table.iter().map(quoted).collect::<String>();
        let read: Vec<_> = read(text.as_bytes()).unwrap().into_iter().map(|(_, cells)| cells).collect();
        let expected: Vec<Vec<_>> = table
            .iter()
            .map(|row| row.iter().map(|cell| cell.replace('"', "\"\"").trim().to_owned()).collect())
            .collect();
        prop_assert_eq!(read, expected);
    }
}
