//! What a terminal, a document and a spreadsheet get.

use crate::sample;
use reports::Validation;

fn validation() -> Validation {
    let mut labels = vec![
        sample::label("all-cpu", 1, 32),
        sample::label("mixed", 4, 128),
        sample::label("streamed", 4, 128),
        sample::label("planned", 16, 64),
    ];
    labels[0].output_tokens = 1;
    labels[1].name = "a name | with *marks*, longer than its column".to_owned();
    sample::validation(labels)
}

#[test]
fn the_table_for_a_terminal() {
    insta::assert_snapshot!(validation().to_text());
}

#[test]
fn the_table_for_a_document() {
    insta::assert_snapshot!(validation().to_markdown());
}

#[test]
fn the_table_for_a_spreadsheet() {
    insta::assert_snapshot!(validation().to_csv());
}

#[test]
fn the_operators_of_one_configuration() {
    let comparison = &validation().configurations[3].comparison;
    insta::assert_snapshot!(comparison.to_text());
    insta::assert_snapshot!(comparison.to_csv());
}

#[test]
fn no_line_for_a_terminal_is_longer_than_80_columns() {
    let validation = validation();
    let comparisons = validation.configurations.iter().map(|it| it.comparison.to_text());
    for text in comparisons.chain([validation.to_text()]) {
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= 80, "{longest}");
    }
}

#[test]
fn a_validation_of_nothing_is_a_table_of_nothing() {
    let empty = sample::validation(Vec::new());
    assert_eq!((empty.summary().ttft, empty.shown()), (None, None));
    assert_eq!(empty.to_text().lines().count(), 2);
    assert_eq!(empty.to_csv().lines().count(), 1);
}
