//! From text to a tree of values, through the events of a YAML parser.

use super::node::{Node, NodeKind, Place, Scalar, ScalarTag};
use super::problem::{Kind, Problem};
use serde_saphyr::granit_parser::{Event, Marker, Options, Parser, ScalarStyle, StrInput, Tag};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Values that a document may have: about 100,000 measured points. Beyond it the reader refuses.
const MOST_NODES: usize = 1_000_000;

/// Lists and maps within each other.
const DEEPEST: usize = 64;

/// The first document of a text, and where a second one begins.
pub(super) struct Document<'t> {
    pub root: Node<'t>,
    pub second: Option<Place>,
}

/// Reads the first document of a text.
///
/// Refuses what is not YAML, keys that are given twice, keys that are not texts, tags that are not
/// YAML's own, and documents that are too large or too deep.
pub(super) fn parse(text: &str) -> Result<Document<'_>, Problem> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let events = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder { events, path: Vec::new(), nodes: 0, depth: 0, anchors: HashMap::new() };
    let mut root = None;
    loop {
        match builder.next()? {
            (Event::StreamEnd, _) => {
                let root = root.unwrap_or(Node { place: Place::START, kind: NodeKind::Empty });
                return Ok(Document { root, second: None });
            }
            (Event::DocumentStart(..), place) => match root {
                Some(root) => return Ok(Document { root, second: Some(place) }),
                None => {
                    let (event, place) = builder.next()?;
                    root = Some(builder.node(event, place)?);
                }
            },
            _ => {}
        }
    }
}

struct Builder<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// The keys that lead to the value that is being read.
    path: Vec<String>,
    nodes: usize,
    depth: usize,
    /// Values with a name (`&name`), by the parser's number.
    anchors: HashMap<usize, Node<'t>>,
}

impl<'t> Builder<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Place), Problem> {
        match self.events.next_event() {
            None => Ok((Event::StreamEnd, Place::UNKNOWN)),
            Some(Ok((event, span))) => Ok((event, place(&span.start))),
            Some(Err(error)) => {
                Err(Problem::at(Kind::Syntax(error.info()), place(error.marker()), &self.path))
            }
        }
    }

    fn refuse(&self, message: &str, place: Place) -> Problem {
        Problem::at(Kind::Custom(message.to_owned()), place, &self.path)
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), Problem> {
        self.nodes += nodes;
        match self.nodes > MOST_NODES {
            true => Err(self.refuse(&format!("the document has more than {MOST_NODES} values"), place)),
            false => Ok(()),
        }
    }

    /// The value that begins with `event`.
    fn node(&mut self, event: Event<'t>, place: Place) -> Result<Node<'t>, Problem> {
        self.count(1, place)?;
        let (anchor, kind) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = self.scalar_tag(style, tag.as_deref(), place)?;
                (anchor, NodeKind::Scalar(Scalar { text, tag }))
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.container_tag(tag, "seq", place)?;
                (anchor, NodeKind::List(self.deeper(place, Self::items)?))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.container_tag(tag, "map", place)?;
                (anchor, NodeKind::Map(self.deeper(place, Self::entries)?))
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(self.refuse("this alias stands for a value that it is a part of", place));
                };
                let (size, kind) = (node.size(), node.kind.clone());
                self.count(size, place)?;
                return Ok(Node { place, kind });
            }
            _ => return Err(self.refuse("a value is expected here", place)),
        };
        let node = Node { place, kind };
        // The parser numbers anchors from 1.
        if anchor != 0 {
            self.count(node.size(), place)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn deeper<T>(
        &mut self,
        place: Place,
        read: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.refuse(&format!("lists and maps nest more than {DEEPEST} deep"), place));
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn items(&mut self) -> Result<Vec<Node<'t>>, Problem> {
        let mut items = Vec::new();
        loop {
            let (event, place) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(items);
            }
            self.path.push(items.len().to_string());
            items.push(self.node(event, place)?);
            self.path.pop();
        }
    }

    fn entries(&mut self) -> Result<Vec<(Node<'t>, Node<'t>)>, Problem> {
        let (mut entries, mut merged) = (Vec::new(), Vec::new());
        let mut keys: HashSet<String> = HashSet::new();
        loop {
            let (event, place) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node(event, place)?;
            let NodeKind::Scalar(scalar) = &key.kind else {
                return Err(self.refuse("a key is a text, not a list or a map", place));
            };
            let name = scalar.text.to_string();
            let is_merge = name == "<<" && scalar.tag == ScalarTag::Plain;
            if !is_merge && !keys.insert(name.clone()) {
                return Err(Problem::at(Kind::DuplicateKey(name), place, &self.path));
            }
            let (event, place) = self.next()?;
            self.path.push(name);
            let value = self.node(event, place)?;
            if is_merge {
                merged.extend(self.merged(value)?);
            } else {
                entries.push((key, value));
            }
            self.path.pop();
        }
        // A key of the map itself, and an earlier merge, come before a merged key.
        for (key, value) in merged {
            if keys.insert(key.text().unwrap_or_default().to_owned()) {
                entries.push((key, value));
            }
        }
        Ok(entries)
    }

    /// The entries that `<<` stands for: those of a map, or of several in a list.
    fn merged(&self, value: Node<'t>) -> Result<Vec<(Node<'t>, Node<'t>)>, Problem> {
        match value.kind {
            NodeKind::Map(entries) => Ok(entries),
            NodeKind::List(items) => {
                let entries: Result<Vec<_>, _> = items.into_iter().map(|item| self.merged(item)).collect();
                Ok(entries?.into_iter().flatten().collect())
            }
            _ => Err(self.refuse("`<<` takes a map or a list of maps", value.place)),
        }
    }

    fn scalar_tag(&self, style: ScalarStyle, tag: Option<&Tag>, place: Place) -> Result<ScalarTag, Problem> {
        let plain = if style == ScalarStyle::Plain { ScalarTag::Plain } else { ScalarTag::Text };
        let Some(tag) = tag else { return Ok(plain) };
        match tag.core_suffix() {
            Some("str") => Ok(ScalarTag::Text),
            Some("null") => Ok(ScalarTag::Null),
            Some("bool") => Ok(ScalarTag::Bool),
            Some("int" | "float") => Ok(ScalarTag::Number),
            _ if tag.original() == "!" => Ok(ScalarTag::Text),
            _ => Err(self.unknown_tag(tag, place)),
        }
    }

    fn container_tag(&self, tag: Option<Cow<'_, Tag>>, own: &str, place: Place) -> Result<(), Problem> {
        match tag {
            Some(tag) if tag.core_suffix() != Some(own) => Err(self.unknown_tag(&tag, place)),
            _ => Ok(()),
        }
    }

    fn unknown_tag(&self, tag: &Tag, place: Place) -> Problem {
        self.refuse(&format!("the tag {} has no meaning here: leave it out", tag.original()), place)
    }
}

fn place(marker: &Marker) -> Place {
    Place { line: marker.line() as u64, column: marker.col() as u64 + 1 }
}
