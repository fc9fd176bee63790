//! The many spellings of a part's name: `NVIDIA GeForce RTX 4090`, `rtx_4090` and `4090` are one
//! GPU, `Intel(R) Xeon(R) Platinum 8480+` is `xeon-8480p`.

use crate::library::shipped::{shipped, shipped_as};
use crate::units::{ComparedWord, plain_word};
use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

/// Words that tell no part from another: makers, brands, tiers, and what systems append.
static IDLE: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "nvidia geforce rtx gtx rx tesla amd radeon instinct ryzen epyc intel xeon platinum gold \
    silver scalable core i3 i5 i7 i9 apple jetson cpu gpu processor graphics gen generation \
    blackwell workstation edition gb hbm2 hbm3 hbm3e gddr6"
        .split(' ')
        .collect()
});

/// Names that systems and people use for a part, as [`spelling`] writes them, where they say more
/// or less than its name.
const OTHERWISE: [(&str, &str); 48] = [
    ("1060", "gtx-1060-6"),
    ("3050", "rtx-3050-8"),
    ("3060", "rtx-3060-12"),
    ("3080", "rtx-3080-10"),
    ("4050", "rtx-4050-laptop"),
    ("a100", "a100-sxm"),
    ("h100", "h100-sxm"),
    ("h200", "h200-sxm"),
    ("h800", "h800-sxm"),
    ("h800pcie", "h100-pcie"),
    ("b200", "b200-sxm"),
    ("b300", "b300-sxm"),
    ("a100sxm440", "a100-40-sxm"),
    ("a100sxm480", "a100-sxm"),
    ("a10040", "a100-40-sxm"),
    ("a10080", "a100-sxm"),
    ("a100pcie", "a100-80-pcie"),
    ("a100pcie40", "a100-40-pcie"),
    ("a100pcie80", "a100-80-pcie"),
    ("h10080", "h100-sxm"),
    ("pro6000server", "rtx-pro-6000-se"),
    ("v100", "v100-16-sxm"),
    ("v10016", "v100-16-sxm"),
    ("v10032", "v100-32-sxm"),
    ("v100sxm", "v100-16-sxm"),
    ("v100sxm2", "v100-16-sxm"),
    ("v100sxm216", "v100-16-sxm"),
    ("v100sxm232", "v100-32-sxm"),
    ("v100pcie", "v100-16-pcie"),
    ("v100pcie16", "v100-16-pcie"),
    ("v100pcie32", "v100-32-pcie"),
    ("m40", "m40-24"),
    ("p100", "p100-16"),
    ("a770", "arc-a770-16"),
    ("arca770", "arc-a770-16"),
    ("agxorin", "jetson-agx-orin-64"),
    ("orinnx", "jetson-orin-nx-16"),
    ("orinnano", "jetson-orin-nano-8"),
    ("orinnanosuper", "jetson-orin-nano-8"),
    ("thor", "jetson-agx-thor"),
    ("7700", "ryzen-7700"),
    ("8480c", "xeon-8480p"),
    ("altraq8030", "ampere-altra-q80-30"),
    ("amperealtra", "ampere-altra-q80-30"),
    ("amperealtramax", "ampere-altra-max-m128-30"),
    ("frameworkdesktop", "ryzen-ai-max-395"),
    ("strixhalo", "ryzen-ai-max-395"),
    ("strixhalo128", "ryzen-ai-max-395-128gb"),
];

/// At most this many similar names are named.
const NAMED: usize = 3;

/// Fewer letters than this are no beginning of a name.
const LEAST: usize = 3;

/// Brands of GPUs alone, and of CPUs alone by maker: `RX 7600` and `Ryzen 7600` are two parts, and
/// so are `Ryzen 7700` and `i7-7700`.
pub(crate) const GPU_BRANDS: [&str; 5] = ["radeon", "geforce", "rtx", "gtx", "rx"];
const CPU_BRANDS: [&[&str]; 2] = [&["ryzen", "epyc", "threadripper"], &["xeon", "i3", "i5", "i7", "i9"]];

/// `text` with a space between a GPU's brand and the number behind it: `rtx4070` → `rtx 4070`.
fn brand_apart(text: &str) -> String {
    let mut apart = String::new();
    for word in text.to_lowercase().split_inclusive(|c: char| !c.is_alphanumeric()) {
        let number = GPU_BRANDS.iter().find_map(|brand| Some((brand, word.strip_prefix(brand)?)));
        match number.filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit())) {
            Some((brand, rest)) => apart.extend([brand, " ", rest]),
            None => apart.push_str(word),
        }
    }
    apart
}

/// What a name cannot mean, by the brands in it.
#[derive(Debug, Clone, Copy)]
struct Excluded {
    /// How the texts of such profiles begin: `cpu:` or `gpu:`.
    kind: Option<&'static str>,
    /// The brands of the other maker of CPUs.
    brands: &'static [&'static str],
}

impl Excluded {
    /// Nothing.
    const NONE: Self = Self { kind: None, brands: &[] };

    /// CPUs where `name` has a brand of GPUs; GPUs, and the other maker's CPUs, where it has one of
    /// CPUs.
    fn by(name: &str) -> Self {
        let lower = name.to_lowercase();
        let has =
            |brands: &[&str]| lower.split(|c: char| !c.is_alphanumeric()).any(|it| brands.contains(&it));
        match (has(&GPU_BRANDS), CPU_BRANDS.map(has)) {
            (true, [false, false]) => Self { kind: Some("cpu:"), ..Self::NONE },
            (false, [true, false]) => Self { kind: Some("gpu:"), brands: CPU_BRANDS[1] },
            (false, [false, true]) => Self { kind: Some("gpu:"), brands: CPU_BRANDS[0] },
            _ => Self::NONE,
        }
    }

    fn holds(self, (name, text): (&str, &str)) -> bool {
        let first = name.split('-').next();
        self.kind.is_some_and(|kind| text.starts_with(kind))
            || first.is_some_and(|first| self.brands.contains(&first))
    }
}

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
        let is_idle = IDLE.contains(word);
        let is_generation = next == Some("gen");
        if is_tier || is_count || counts || is_generation || is_idle {
            continue;
        }
        spelt.push_str(&plain(word));
    }
    spelt
}

/// A shipped profile with its name as it is compared.
struct ShippedName {
    name: &'static str,
    text: &'static str,
    /// As [`spelling`] writes it, and what else it is called, of [`OTHERWISE`].
    spellings: Vec<(String, ComparedWord)>,
    /// Its letters and digits.
    plain: ComparedWord,
    /// Its digits.
    digits: String,
}

impl ShippedName {
    fn new(name: &'static str, text: &'static str) -> Self {
        let otherwise = OTHERWISE.iter().filter(|(_, means)| *means == name).map(|(it, _)| (*it).to_owned());
        let spellings = std::iter::once(spelling(name)).chain(otherwise).map(|spelt| {
            let compared = ComparedWord::new(&spelt);
            (spelt, compared)
        });
        let plain = ComparedWord::new(&plain_word(name));
        Self { name, text, spellings: spellings.collect(), plain, digits: digits(name) }
    }

    /// Its name as [`spelling`] writes it.
    fn spelt(&self) -> &str {
        &self.spellings[0].0
    }
}

/// The names of the shipped profiles.
static NAMES: LazyLock<Vec<ShippedName>> =
    LazyLock::new(|| shipped().map(|(name, text)| ShippedName::new(name, text)).collect());

/// The shipped profiles of each spelling, in their order.
static BY_SPELLING: LazyLock<HashMap<&str, Vec<&ShippedName>>> = LazyLock::new(|| {
    let mut by_spelling: HashMap<&str, Vec<&ShippedName>> = HashMap::new();
    NAMES.iter().for_each(|it| by_spelling.entry(it.spelt()).or_default().push(it));
    by_spelling
});

/// The first shipped profile that is spelt so and is not `excluded`.
fn spelt_so(spelt: &str, excluded: &Excluded) -> Option<&'static ShippedName> {
    let known = BY_SPELLING.get(spelt).filter(|_| !spelt.is_empty())?;
    known.iter().copied().find(|it| !excluded.holds((it.name, it.text)))
}

fn digits(word: &str) -> String {
    word.chars().filter(char::is_ascii_digit).collect()
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
    let apart = brand_apart(name);
    // Most words of a line name no part, and what they exclude is then not asked.
    let excluded = LazyCell::new(|| Excluded::by(&apart));
    let found = |wanted: &str| {
        let otherwise = OTHERWISE.iter().find(|(other, _)| *other == wanted);
        let named = otherwise.and_then(|(_, name)| shipped_as(name)).filter(|it| !excluded.holds(*it));
        named.or_else(|| spelt_so(wanted, &excluded).map(|it| (it.name, it.text)))
    };
    let wanted = spelling(&apart);
    found(&spelling(name)).or_else(|| found(&wanted)).or_else(|| with_suffix(&wanted))
}

/// The shipped GPUs that `name` means where a size of memory stands behind it, with that size, the
/// smallest first: `RTX 4060 Ti` means two. Not all numbers behind a name are sizes.
pub(crate) fn with_sizes(name: &str) -> impl Iterator<Item = (u64, &'static str)> {
    static BY_NAME_WITHOUT: LazyLock<HashMap<String, BTreeMap<u64, &str>>> = LazyLock::new(|| {
        let mut sizes: HashMap<String, BTreeMap<u64, &str>> = HashMap::new();
        for (name, _) in shipped().filter(|(_, text)| text.starts_with("gpu:")) {
            let Some((without, size)) = name.rsplit_once('-') else { continue };
            if let Ok(size) = size.parse() {
                sizes.entry(spelling(without)).or_default().entry(size).or_insert(name);
            }
        }
        sizes
    });
    let sizes = BY_NAME_WITHOUT.get(&spelling(&brand_apart(name)));
    sizes.into_iter().flatten().map(|(size, name)| (*size, *name))
}

/// The CPU that computes as the one with a letter more: an Intel Core without graphics
/// (`i5-13400F`), and an EPYC for one socket only (`EPYC 7443P`).
fn with_suffix(wanted: &str) -> Option<(&'static str, &'static str)> {
    const FAMILIES: [(char, &[&str]); 2] =
        [('f', &["i3-", "i5-", "i7-", "i9-", "core-ultra-"]), ('p', &["epyc-"])];
    FAMILIES.iter().find_map(|(suffix, families)| {
        let own = wanted.strip_suffix(*suffix)?;
        let is_family = |name: &str| families.iter().any(|family| name.starts_with(family));
        let known = BY_SPELLING.get(own)?;
        known.iter().find(|it| is_family(it.name)).map(|it| (it.name, it.text))
    })
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
/// before those that hold it, those with its digits and hardly another letter, those that it begins
/// with, and those with few other letters.
pub fn similar_names(name: &str) -> Vec<&'static str> {
    let apart = brand_apart(name);
    let (wanted, plain) = (spelling(&apart), plain_word(name));
    let (compared, compared_plain) = (ComparedWord::new(&wanted), ComparedWord::new(&plain));
    let rank = |(own, compared_own): &(String, ComparedWord)| {
        let begins = |long: &str, short: &str| short.len() >= LEAST && long.starts_with(short);
        // Where one word contains the other, the edits are the letters that it has more.
        let more = || own.chars().count().abs_diff(wanted.chars().count());
        match () {
            () if begins(own, &wanted) => Some((0, more())),
            () if wanted.len() >= LEAST && own.contains(&wanted) => Some((1, more())),
            () if begins(&wanted, own) => Some((3, more())),
            () => compared.edits_within(compared_own, wanted.len() / 3).map(|edits| (4, edits)),
        }
    };
    let wanted_digits = digits(&plain);
    // A name with its digits and hardly another letter.
    let slip = |it: &ShippedName| match it.digits == wanted_digits {
        true => compared_plain.edits_within(&it.plain, plain.len() / 6),
        false => None,
    };
    let excluded = Excluded::by(&apart);
    let mut near: Vec<_> = NAMES
        .iter()
        .filter(|it| !excluded.holds((it.name, it.text)))
        .filter_map(|it| {
            let ranks = it.spellings.iter().filter_map(rank);
            let (rank, edits) = ranks.chain(slip(it).map(|edits| (2, edits))).min()?;
            Some((rank, edits, it.name))
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
