//! Rooms: the folders directly under a crate's `src`, and the order in which they may use each
//! other.

use super::imports::{Import, imports};
use crate::workspace::{Crate, Workspace};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

/// The line of a crate's first comment that states the order of its rooms.
const STATEMENT: &str = "//! Rooms, each using only those before it:";

/// Circles that are left, each of at most [`LARGEST_CIRCLE`] files.
const MOST_CIRCLES: usize = 3;
const LARGEST_CIRCLE: usize = 3;

pub fn order(workspace: &Workspace) -> Vec<String> {
    let mut complaints = Vec::new();
    for member in &workspace.crates {
        let rooms = match stated(member) {
            Ok(rooms) => rooms,
            Err(complaint) => {
                complaints.push(complaint);
                continue;
            }
        };
        let position = |name: &str| rooms.iter().position(|room| room == name);
        let product = member.sources.iter().filter(|file| !file.is_test);
        let existing: BTreeSet<_> = product.filter_map(|file| file.module.first()).collect();
        complaints.extend(
            existing
                .iter()
                .filter(|room| position(room).is_none())
                .map(|room| format!("{}: room {room} is not in the stated order", member.name)),
        );
        complaints.extend(
            rooms
                .iter()
                .filter(|room| !existing.contains(room))
                .map(|room| format!("{}: there is no room {room}", member.name)),
        );
        for Import { from, to } in imports(member) {
            let (Some(user), Some(used)) = (from.module.first(), to.module.first()) else { continue };
            if let (Some(before), Some(after)) = (position(used), position(user))
                && before > after
            {
                complaints.push(format!("{} uses {}: {user} stands before {used}", from.path, to.path));
            }
        }
    }
    complaints
}

pub fn circles(workspace: &Workspace) -> Vec<String> {
    let mut circles = Vec::new();
    for member in &workspace.crates {
        let mut graph = DiGraph::<&str, ()>::new();
        let nodes: BTreeMap<&str, NodeIndex> =
            member.sources.iter().map(|file| (file.path.as_str(), graph.add_node(&file.path))).collect();
        for Import { from, to } in imports(member) {
            if !to.module.is_empty() {
                graph.update_edge(nodes[from.path.as_str()], nodes[to.path.as_str()], ());
            }
        }
        for circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1) {
            let mut files: Vec<_> = circle.into_iter().map(|node| graph[node]).collect();
            files.sort_unstable();
            circles.push(files.join(", "));
        }
    }
    let small = |circle: &&String| circle.split(", ").count() <= LARGEST_CIRCLE;
    if circles.len() <= MOST_CIRCLES && circles.iter().all(|circle| small(&circle)) {
        return Vec::new();
    }
    circles
}

fn stated(member: &Crate) -> Result<Vec<String>, String> {
    let root = member.sources.iter().find(|file| file.module.is_empty());
    let root = root.ok_or_else(|| format!("{}: no src/lib.rs or src/main.rs", member.name))?;
    let mut lines = root.text.lines().skip_while(|line| !line.starts_with(STATEMENT));
    let Some(first) = lines.next() else {
        return Err(format!("{}: no line \"{STATEMENT} …\"", root.path));
    };
    // The list may go on over the lines that follow, up to its full stop.
    let mut list = first[STATEMENT.len()..].to_owned();
    while !list.trim_end().ends_with('.') {
        match lines.next().and_then(|line| line.strip_prefix("//!")) {
            Some(rest) => list += rest,
            None => return Err(format!("{}: the list of rooms has no full stop", root.path)),
        }
    }
    let rooms = list.trim_end().trim_end_matches('.').split(',');
    Ok(rooms.map(|room| room.trim().trim_matches(['`', '[', ']']).to_owned()).collect())
}
