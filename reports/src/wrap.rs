//! Lines for a terminal.

/// `text` in lines of at most `width` columns, broken between words; a longer word is cut.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    // A line break or a tab in a name would tear the table.
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    for word in words {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let line = lines.last_mut().expect("there is one");
            let used = line.chars().count();
            let blank = usize::from(used > 0);
            if used + blank + rest.len() <= width || (used == 0 && rest.len() > width) {
                let part: String = rest.drain(..rest.len().min(width - blank - used)).collect();
                line.push_str(&" ".repeat(blank));
                line.push_str(&part);
            } else {
                lines.push(String::new());
            }
        }
    }
    lines
}
