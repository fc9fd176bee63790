//! The page as HTML: one file that loads nothing else. Only explorable tables and timelines need a
//! script.

use crate::page::block::PageBlock;
use crate::page::explorer::base64;
use crate::page::section::PageSection;
use crate::plots::drawing::svg::STYLE;
use crate::results::error::ReportError;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use sha2::{Digest, Sha256};

/// The script for explorable tables.
const EXPLORER: &str = include_str!("../../templates/explorer.js");
/// The script for timelines.
const TIMELINE: &str = include_str!("../../templates/timeline.js");
/// The style of a page without its plots.
const PAGE_STYLE: &str = include_str!("../../templates/report.css");

/// A template engine with one template. It escapes every text and refuses unknown names.
pub(crate) fn environment(
    name: &'static str,
    template: &'static str,
) -> Result<Environment<'static>, ReportError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_template(name, template)?;
    Ok(environment)
}

/// The style sheet of a page with plots.
pub(crate) fn page_style() -> Value {
    Value::from_safe_string(format!("{STYLE}{PAGE_STYLE}"))
}

/// The text of the page. `provenance` is a table of the files behind the page.
///
/// # Errors
/// A mistake in the template, which tests rule out.
pub(crate) fn render(
    sections: &[PageSection],
    provenance: Option<&PageBlock>,
) -> Result<String, ReportError> {
    let environment = environment("report.html", include_str!("../../templates/report.html"))?;
    let title = match sections {
        [only] => only.title.clone(),
        several => format!("{} results", several.len()),
    };
    let script = script(sections);
    // The browser runs only the script with this hash, whatever else gets onto the page.
    let hash = script.as_ref().map(|script| base64(&Sha256::digest(script)));
    let page = environment.get_template("report.html")?.render(context! {
        title,
        style => page_style(),
        sections => sections.iter().map(section_context).collect::<Vec<_>>(),
        provenance => provenance.map(PageBlock::context),
        script => script.map(Value::from_safe_string),
        hash,
    })?;
    Ok(without_controls(page))
}

/// What the page's blocks need to be explored, if any does.
fn script(sections: &[PageSection]) -> Option<String> {
    let has = |wanted: fn(&PageBlock) -> bool| sections.iter().any(|it| it.blocks.iter().any(wanted));
    let parts = [
        has(|block| matches!(block, PageBlock::Explorer(_))).then_some(EXPLORER),
        has(PageBlock::shows_time).then_some(TIMELINE),
    ];
    let script: String = parts.into_iter().flatten().collect();
    (!script.is_empty()).then_some(script)
}

/// The page with a mark in place of each control character, and of each that turns the order of
/// what follows: names come from files of strangers, and style and script have none.
fn without_controls(page: String) -> String {
    let steers = |c: char| match c {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    };
    if page.contains(steers) { page.replace(steers, "\u{fffd}") } else { page }
}

/// A section for the template.
fn section_context(section: &PageSection) -> Value {
    let blocks = section.blocks.iter().map(PageBlock::context);
    let headings = section.blocks.iter().filter_map(|block| match block {
        PageBlock::Heading(text) => Some(Value::from(text.as_str())),
        _ => None,
    });
    context! {
        title => section.title.as_str(),
        lead => section.lead.as_str(),
        headings => headings.collect::<Vec<_>>(),
        blocks => blocks.collect::<Vec<_>>(),
    }
}
