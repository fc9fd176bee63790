//! The page and the plots.

use crate::sample;
use reports::Validation;
use std::sync::LazyLock;

/// A name that would be markup if it were not escaped.
pub const HOSTILE: &str = "<script>alert('x')</script>&amp;\"\u{1b}[2J\u{202e}";

static VALIDATION: LazyLock<Validation> = LazyLock::new(|| {
    let mut labels = Vec::new();
    for (batch, prompt) in [(1, 128), (4, 128), (16, 64), (1, 512)] {
        labels.extend(
            ["all-cpu", "mixed", "streamed", "planned"].map(|kind| sample::label(kind, batch, prompt)),
        );
    }
    labels[1].name = HOSTILE.to_owned();
    let mut validation = sample::validation(labels);
    validation.model = HOSTILE.to_owned();
    validation.commands.push(HOSTILE.to_owned());
    validation
});

/// The page without its script and every plot file, with their names.
static TEXTS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    // To look at the pages: `FULCRUM_KEEP_PAGES=folder cargo test -p fulcrum-reports`.
    if let Some(folder) = std::env::var_os("FULCRUM_KEEP_PAGES") {
        let folder = std::path::Path::new(&folder);
        VALIDATION.write_html(folder.join("report.html")).unwrap();
        VALIDATION.write_plots(folder).unwrap();
        reports::Report::from(VALIDATION.clone()).write_pictures(folder).unwrap();
        VALIDATION.write(folder.join("results.json")).unwrap();
    }
    let page = ("report.html".to_owned(), without_scripts(&VALIDATION.to_html().unwrap()));
    VALIDATION.plots().into_iter().chain([page]).collect()
});

/// The page without scripts and without the data of explorers, which are not markup.
pub fn without_scripts(page: &str) -> String {
    let mut text = String::new();
    for (index, part) in page.split("<script").enumerate() {
        text += if index == 0 { part } else { part.split_once("</script>").expect("scripts end").1 };
    }
    text
}

/// Checks that tags nest and attributes end.
pub fn check_tags(name: &str, text: &str) {
    let void = ["meta", "br", "hr", "link", "img"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if rest.starts_with('!') {
            continue;
        }
        let end = rest.find('>').unwrap_or_else(|| panic!("{name}: a tag without end"));
        let tag = &rest[..end];
        rest = &rest[end..];
        let word = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(word), "{name}: </{word}>");
        } else if !tag.ends_with('/') && !void.contains(&word) {
            open.push(word);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: an attribute without end in <{tag}>");
    }
    assert_eq!(open, [""; 0], "{name}: left open");
}

#[test]
fn tags_nest_and_attributes_end() {
    for (name, text) in &*TEXTS {
        check_tags(name, text);
    }
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    for (name, text) in &*TEXTS {
        // The namespace of SVG is an address that nothing opens.
        let text = text.replace("http://www.w3.org/2000/svg", "").to_lowercase();
        for forbidden in
            ["http:", "https:", "//", "<script", "<link", "@import", "src=", "javascript:", "onload"]
        {
            assert!(!text.contains(forbidden), "{name} has {forbidden}");
        }
        assert!(!text.replace("url(#hatch)", "").contains("url("), "{name} has url(…)");
    }
}

#[test]
fn the_only_script_is_that_of_timelines_and_reaches_nothing() {
    let page = VALIDATION.to_html().unwrap();
    let script = include_str!("../../templates/timeline.js");
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains(&format!("<script>{script}</script>")));
    let script = script.replace("http://www.w3.org/2000/svg", "");
    for forbidden in ["http", "fetch", "Request", "import", "eval", "innerHTML", "WebSocket", "</"] {
        assert!(!script.contains(forbidden), "the script has {forbidden}");
    }
}

#[test]
fn names_are_escaped_everywhere() {
    let steers = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    for (name, text) in TEXTS.iter() {
        assert!(!text.contains(steers), "{name} has a control character");
    }
    let mut seen = 0;
    for (name, text) in &*TEXTS {
        assert!(!text.contains("<script"), "{name}");
        assert!(!text.contains("alert('x')"), "{name}");
        seen += text.matches("&lt;script&gt;").count();
    }
    assert!(seen > 10, "the hostile name is on the page only {seen} times");
}

#[test]
fn drawings_have_no_coordinate_that_is_not_a_number() {
    for (name, text) in &*TEXTS {
        assert!(!text.contains("NaN") && !text.contains("inf\"") && !text.contains("inf "), "{name}");
    }
}

#[test]
fn the_page_is_the_same_each_time_and_survives_the_file() {
    let page = VALIDATION.to_html().unwrap();
    let again = Validation::parse(&VALIDATION.to_json(), std::path::Path::new("results.json")).unwrap();
    assert!(again.to_html().unwrap() == page, "the pages differ");
}

#[test]
fn a_validation_of_nothing_is_still_a_page() {
    let page = sample::validation(Vec::new()).to_html().unwrap();
    check_tags("report.html", &page);
    assert!(page.contains("0 configurations"));
}

#[test]
fn what_was_not_measured_is_not_called_measured() {
    let warning = "ran on null devices, which spend modelled time";
    assert!(!VALIDATION.to_html().unwrap().contains(warning));
    let mut modelled = VALIDATION.clone();
    modelled.configurations[3].comparison.measured_by = planner::Recorder::Modelled;
    assert!(modelled.to_html().unwrap().contains(warning));
}
