//! The words of a machine's line, before parts are looked up: counts, sizes, modules, links.

use crate::library::shipped_called;
use crate::units::Bytes;

/// Words between two separators, in lower case.
pub(super) type Phrase = Vec<String>;

/// The phrases of a line: commas, `+`, `/`, `and`, `with` and the like separate.
pub(super) fn phrases(line: &str) -> Vec<Phrase> {
    let mut text = format!(" {} ", line.to_lowercase());
    for (from, to) in [
        ("(r)", " "),
        ("(tm)", " "),
        ("®", " "),
        ("™", " "),
        ("×", "x"),
        ("mt/s", "mts"),
        (" w/", " , "),
        ("_", " "),
        ("(", " "),
        (")", " "),
    ] {
        text = text.replace(from, to);
    }
    let separators = [',', ';', '|', '/', '&', '\n'];
    let words = |phrase: &str| phrase.split_whitespace().flat_map(split_count).collect::<Vec<_>>();
    let divided = |words: Vec<String>| {
        let between = |word: &String| matches!(&**word, "+" | "and" | "with" | "plus");
        words.split(between).map(<[String]>::to_vec).collect::<Vec<_>>()
    };
    let all = text.split(separators).flat_map(|phrase| divided(words(phrase)));
    all.filter(|phrase| !phrase.is_empty()).collect()
}

/// `2x3090` → `2x`, `3090`; `16-core` → `16`, `core`; other words stay.
fn split_count(word: &str) -> Vec<String> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = word.split_at(digits);
    let split = match rest.strip_prefix('x') {
        Some(rest) if (1..=2).contains(&digits) && !rest.is_empty() => Some((format!("{number}x"), rest)),
        _ => {
            let counted = |rest: &&str| rest.starts_with("core") || rest.starts_with("channel");
            let rest = rest.strip_prefix('-').filter(counted).filter(|_| digits > 0);
            rest.map(|rest| (number.to_owned(), rest))
        }
    };
    match split {
        Some((count, rest)) => vec![count, rest.to_owned()],
        None => vec![word.trim_end_matches('.').to_owned()],
    }
}

/// How many: `2x`, `x2`, `dual`.
pub(super) fn count(word: &str) -> Option<u64> {
    let named =
        [("single", 1), ("dual", 2), ("two", 2), ("triple", 3), ("three", 3), ("quad", 4), ("four", 4)];
    if let Some((_, count)) = named.iter().find(|(name, _)| *name == word) {
        return Some(*count);
    }
    let digits = word.strip_suffix('x').or_else(|| word.strip_prefix('x'))?;
    digits.parse().ok().filter(|_| digits.len() <= 2)
}

/// A size at the beginning of `words`, and how many words say it: `64gb`, `1.5 tb`, `128 gib`.
pub(super) fn size(words: &[String]) -> Option<(Bytes, usize)> {
    let first = words.first()?;
    let end = first.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(first.len());
    let number: f64 = first[..end].parse().ok()?;
    let (unit, used) = match &first[end..] {
        "" => (words.get(1)?.as_str(), 2),
        unit => (unit, 1),
    };
    let unit: Bytes = match unit {
        "g" | "gb" | "gigs" | "gig" => "1 GB",
        "gib" => "1 GiB",
        "t" | "tb" => "1 TB",
        "tib" => "1 TiB",
        _ => return None,
    }
    .parse()
    .ok()?;
    Some((Bytes::new((number * unit.as_f64()).round() as u64), used))
}

/// Memory modules as written: `DDR5` with millions of transfers per second, where they are said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleWords {
    pub kind: String,
    pub rate: Option<u64>,
}

impl ModuleWords {
    /// A usual rate of modules of the kind, for a machine of which none is said.
    pub fn usual_rate(&self) -> Option<u64> {
        match self.kind.as_str() {
            "DDR3" => Some(1600),
            "DDR4" => Some(3200),
            "DDR5" => Some(4800),
            _ => None,
        }
    }
}

/// Modules at the beginning of `words`, and how many words say them: `ddr5-6000`, `ddr4 3200 mhz`,
/// `mrdimm-8800`.
pub(super) fn modules(words: &[String]) -> Option<(ModuleWords, usize)> {
    let first = words.first()?;
    // Modules of DDR5, two ranks of which are read at once.
    let multiplexed = ["mrdimm", "mcrdimm"].iter().find_map(|name| first.strip_prefix(name));
    let (kind, tail) = match multiplexed.map(|tail| tail.trim_start_matches('s')) {
        Some(tail) => ("ddr5", tail),
        None => {
            let after = first.strip_prefix("lp").unwrap_or(first).strip_prefix("ddr")?;
            let kind_end = after.find(|c: char| !c.is_ascii_digit() && c != 'x').unwrap_or(after.len());
            first.split_at(first.len() - after.len() + kind_end)
        }
    };
    let own = rate(tail.trim_start_matches(['-', '@', '_']));
    let next = words.get(1).and_then(|word| rate(word));
    let used = 1 + usize::from(own.is_none() && next.is_some());
    Some((ModuleWords { kind: kind.to_uppercase(), rate: own.or(next) }, used))
}

/// Millions of transfers per second: `6000`, `6000mhz`, `6000mts`.
pub(super) fn rate(word: &str) -> Option<u64> {
    let number = word.trim_end_matches("mhz").trim_end_matches("mts");
    number.parse().ok().filter(|rate| (800..=20_000).contains(rate))
}

/// The shipped link at the beginning of `words`, and how many words say it: `pcie 4.0 x8`, `gen5`,
/// `oculink`. An error is a link that is none.
pub(super) fn link(words: &[String]) -> Option<(Result<String, String>, usize)> {
    let first = words.first()?.replace("pci-e", "pcie");
    let known = |name: &str| {
        let found = shipped_called(name).map(|(name, _)| name.to_owned());
        found.ok_or_else(|| name.to_owned())
    };
    if first == "oculink" {
        return Some((known(&first), 1));
    }
    if let Some(version) = first.strip_prefix("thunderbolt").or_else(|| first.strip_prefix("usb")) {
        let next = words.get(1).map_or("", String::as_str);
        let (version, used) = if version.is_empty() { (next, 2) } else { (version, 1) };
        return Some((known(&format!("thunderbolt{version}")), used.min(words.len())));
    }
    let tail = first.strip_prefix("pcie").or_else(|| first.strip_prefix("gen"))?;
    let mut text = tail.trim_start_matches(['-', 'v']).to_owned();
    let mut used = 1;
    while let Some(word) = words.get(used).filter(|_| used < 4) {
        let word = word.trim_start_matches("gen").trim_start_matches('v');
        let is_width = word.strip_prefix('x').is_some_and(|width| width.parse::<u64>().is_ok());
        let is_version =
            word.trim_end_matches(".0").len() == 1 && word.starts_with(|c: char| c.is_ascii_digit());
        if !(is_width || is_version || word.is_empty()) {
            break;
        }
        text += word;
        used += 1;
    }
    let (version, width) = text.split_once('x').unwrap_or((&text, "16"));
    let version = version.trim_end_matches('-').trim_end_matches(".0");
    // A bare "PCIe" says nothing.
    let version = if version.is_empty() { "4" } else { version };
    Some((known(&format!("pcie{version}-x{width}")), used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        phrases(text).into_iter().flatten().collect()
    }

    #[test]
    fn phrases_end_at_separators() {
        let found = phrases("2x RTX 3090 + EPYC 7543, 8x32GB and PCIe 4.0 x16 w/ 10-Core");
        let joined: Vec<_> = found.iter().map(|phrase| phrase.join(" ")).collect();
        assert_eq!(joined, ["2x rtx 3090", "epyc 7543", "8x 32gb", "pcie 4.0 x16", "10 core"]);
    }

    #[test]
    fn sizes_modules_and_links_are_read_in_their_spellings() {
        let gb = |text: &str| size(&words(text)).map(|(bytes, used)| (bytes.gigabytes(), used));
        assert_eq!(gb("64GB"), Some((64.0, 1)));
        assert_eq!(gb("1.5 TB"), Some((1500.0, 2)));
        assert_eq!(gb("0 gb"), Some((0.0, 2)));
        assert_eq!((gb("7950x"), gb("RTX")), (None, None));
        let ddr = |text: &str| modules(&words(text)).map(|(it, used)| (it.kind, it.rate, used));
        assert_eq!(ddr("DDR5-6000"), Some(("DDR5".to_owned(), Some(6000), 1)));
        assert_eq!(ddr("DDR4 3200 MHz"), Some(("DDR4".to_owned(), Some(3200), 2)));
        assert_eq!(ddr("LPDDR5X-8533"), Some(("LPDDR5X".to_owned(), Some(8533), 1)));
        assert_eq!(ddr("DDR5"), Some(("DDR5".to_owned(), None, 1)));
        assert_eq!(ddr("MRDIMM-8800"), Some(("DDR5".to_owned(), Some(8800), 1)));
        assert_eq!(ddr("MRDIMMs 8800 MT/s"), Some(("DDR5".to_owned(), Some(8800), 2)));
        let wire = |text: &str| link(&words(text)).and_then(|(name, _)| name.ok());
        assert_eq!(wire("PCIe 4.0 x16").as_deref(), Some("pcie4-x16"));
        assert_eq!(wire("PCIe Gen5 x8").as_deref(), Some("pcie5-x8"));
        assert_eq!(wire("Gen4").as_deref(), Some("pcie4-x16"));
        assert_eq!(wire("pcie3-x4").as_deref(), Some("pcie3-x4"));
        assert_eq!(wire("Thunderbolt 4").as_deref(), Some("thunderbolt4"));
        assert!(matches!(link(&words("PCIe 9.0 x16")), Some((Err(_), 3))));
    }
}
