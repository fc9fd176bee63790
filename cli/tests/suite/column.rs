//! A table that a sweep wrote, column by column.

/// The cells of a column.
pub fn column(table: &str, name: &str) -> Vec<String> {
    let split = |line: &str| {
        let (mut cells, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().expect("one at least").push(c),
            }
        }
        cells
    };
    let mut lines = table.lines().map(split);
    let header = lines.next().expect("a header");
    let at = header.iter().position(|cell| cell == name).expect("the column");
    lines.map(|cells| cells[at].clone()).collect()
}
