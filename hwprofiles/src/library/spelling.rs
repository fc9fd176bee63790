//! The many spellings of a part's name: `NVIDIA GeForce RTX 4090`, `rtx_4090` and `4090` are one
//! GPU, `Intel(R) Xeon(R) Platinum 8480+` is `xeon-8480p`.

use crate::library::shipped::{shipped, shipped_as};
use crate::units::edits_between;

/// Words that tell no part from another: makers, brands, tiers, and what systems append.
const IDLE: &str = "nvidia geforce rtx gtx tesla amd radeon instinct ryzen epyc intel xeon platinum gold \
    silver scalable core i3 i5 i7 i9 apple cpu gpu processor graphics gen generation \
    blackwell workstation edition gb hbm2 hbm3 hbm3e gddr6";

/// Names that systems and people use for a part, as [`spelling`] writes them, where they say more
/// or less than its name.
const OTHERWISE: [(&str, &str); 14] = [
    ("3050", "rtx-3050-8"),
    ("3060", "rtx-3060-12"),
    ("3080", "rtx-3080-10"),
    ("a100", "a100-sxm"),
    ("h100", "h100-sxm"),
    ("h200", "h200-sxm"),
    ("b200", "b200-sxm"),
    ("b300", "b300-sxm"),
    ("a100sxm440", "a100-40-sxm"),
    ("a100sxm480", "a100-sxm"),
    ("a100pcie40", "a100-40-pcie"),
    ("h10080", "h100-sxm"),
    ("pro6000server", "rtx-pro-6000-se"),
    ("v100sxm232", "v100-32-sxm"),
];

/// At most this many similar names are named.
const NAMED: usize = 3;

/// Fewer letters than this are no beginning of a name.
const LEAST: usize = 3;

/// What tells a part from others, as one word: `Core i9-13900K` and `13900k` are the same.
fn spelling(name: &str) -> String {
    let lower = name.to_lowercase().replace("(r)", " ").replace("(tm)", " ");
    let lower = [" @", " w/", " with "]
        .iter()
        .fold(lower.as_str(), |text, tail| text.split_once(tail).map_or(text, |(text, _)| text));
    let apart = |c: char| !c.is_alphanumeric() && c != '+';
    let words: Vec<&str> = lower.split(apart).filter(|word| !word.is_empty()).collect();
    let mut spelt = String::new();
    for (index, word) in words.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| words[before]);
        let next = words.get(index + 1).copied();
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_tier = is_number && word.len() == 1 && before == Some("ryzen");
        let is_count = is_number && matches!(next, Some("core" | "cores"));
        let counts = *word == "cores" && before.is_some_and(|before| before.parse::<u64>().is_ok());
        let is_idle = IDLE.split(' ').any(|idle| idle == *word);
        let is_generation = next == Some("gen");
        if is_tier || is_count || counts || is_generation || is_idle {
            continue;
        }
        spelt.push_str(&plain(word));
    }
    spelt
}

/// One word: a size without its unit, a plus that belongs to a number as a letter.
fn plain(word: &str) -> String {
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let size = word.strip_suffix("gb").filter(|size| size.bytes().all(|byte| byte.is_ascii_digit()));
    match (word, size) {
        ("mobile", _) => "laptop".to_owned(),
        (_, Some(size)) => size.to_owned(),
        _ => word.replace('+', if has_digit { "p" } else { "" }),
    }
}

/// The shipped profile that `name` means in another spelling.
pub(crate) fn spelt(name: &str) -> Option<(&'static str, &'static str)> {
    let wanted = spelling(name);
    let otherwise = OTHERWISE.iter().find(|(other, _)| *other == wanted).map(|(_, shipped)| *shipped);
    if wanted.is_empty() {
        return None;
    }
    shipped().find(|(shipped, _)| otherwise.map_or_else(|| spelling(shipped) == wanted, |it| it == *shipped))
}

/// The shipped profile that `name` means, by its own name or in another spelling: its name and its
/// text. No file is looked for.
pub fn shipped_called(name: &str) -> Option<(&'static str, &'static str)> {
    shipped_as(name).or_else(|| spelt(name))
}

/// The shipped names that are nearest to `name`, as a question; `None` where none is near.
pub(crate) fn similar(name: &str) -> Option<String> {
    let names = similar_names(name);
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(", ")))
}

/// The shipped names that are nearest to `name`, at most three. Those that begin with it come
/// before those that hold it, those that it begins with, and those with few other letters.
pub fn similar_names(name: &str) -> Vec<&'static str> {
    let wanted = spelling(name);
    let mut near: Vec<_> = shipped()
        .filter_map(|(shipped, _)| {
            let own = spelling(shipped);
            let edits = edits_between(&wanted, &own);
            let begins = |long: &str, short: &str| short.len() >= LEAST && long.starts_with(short);
            let rank = match () {
                () if begins(&own, &wanted) => 0,
                () if wanted.len() >= LEAST && own.contains(&wanted) => 1,
                () if begins(&wanted, &own) => 2,
                () if edits <= wanted.len() / 3 => 3,
                () => return None,
            };
            Some((rank, edits, shipped))
        })
        .collect();
    near.sort_unstable();
    let best = near.first().map(|(rank, ..)| *rank);
    near.into_iter()
        .filter(|(rank, ..)| Some(*rank) == best)
        .take(NAMED)
        .map(|(.., shipped)| shipped)
        .collect()
}
