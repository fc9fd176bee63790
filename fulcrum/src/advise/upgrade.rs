//! What one purchase brings: memory, faster memory, another GPU, a second one.

use super::advice_row::{AdviceRow, outcome};
use super::advised_machine::AdvisedMachine;
use super::model_catalog::CataloguedModel;
use super::placing::EngineOnMachine;
use super::question::AdviceQuestion;
use crate::error::{Error, OrError, Result};
use hwprofiles::{
    Bytes, CpuPart, Dollars, DramChoice, GpuChoice, Library, MemoryModules, PartNames, Profile, Sourced,
    TableRows,
};
use rayon::prelude::*;
use serde::Serialize;

const USUAL: &str = include_str!("prices.csv");

/// An upgrade must make the answer better by this factor to be told.
const WORTH_TELLING: f64 = 1.05;

/// The most upgrades of one kind that are told.
const TOLD: usize = 3;

/// Speeds of modules that are sold, by kind.
const SPEEDS: [(&str, [u64; 2]); 2] = [("DDR4", [3200, 3600]), ("DDR5", [6000, 6400])];

/// Prices of what people buy to make a machine faster.
#[derive(Debug, Clone, PartialEq)]
pub struct UpgradePrices(Vec<UpgradePrice>);

#[derive(Debug, Clone, PartialEq)]
struct UpgradePrice {
    kind: String,
    name: String,
    /// Of a GPU, or of one gigabyte of memory.
    price: Dollars,
    /// Date and source.
    source: String,
}

/// What one purchase brings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Upgrade {
    /// What is bought.
    pub change: String,
    /// What it costs.
    pub price: Dollars,
    /// Date and source of the price.
    pub price_source: String,
    /// The best that then runs.
    pub row: AdviceRow,
}

impl UpgradePrices {
    /// The shipped prices.
    ///
    /// # Panics
    /// Never: a test reads the shipped table.
    pub fn usual() -> Self {
        Self::from_csv(USUAL, "prices.csv").expect("a test reads the shipped prices")
    }

    /// Prices from a table with the columns kind (memory, registered, gpu), name, usd, date and
    /// source. A price of memory is that of one gigabyte.
    ///
    /// # Errors
    /// A column is missing, or a price is no number above 0.
    pub fn from_csv(text: &str, file: &str) -> Result<Self> {
        let mut rows = TableRows::new(text.as_bytes(), file).or_input()?;
        let columns = ["kind", "name", "usd", "date", "source"];
        let at = |column: &str| rows.names().iter().position(|name| name == column);
        let places = columns.map(at);
        if let Some(missing) = columns.iter().zip(places).find_map(|(name, at)| at.is_none().then_some(name))
        {
            let all = columns.join(", ");
            return Err(Error::input(format!("{file}: the column {missing} is missing; wanted are {all}")));
        }
        let places = places.map(Option::unwrap_or_default);
        let mut prices = Vec::new();
        while rows.advance().or_input()? {
            let cell = |at: usize| String::from_utf8_lossy(rows.cell(places[at])).into_owned();
            let price = cell(2).parse::<f64>().ok().filter(|price| *price > 0.0);
            let Some(price) = price else {
                return Err(rows.refuse(places[2], "a price in US dollars, above 0, is wanted".to_owned()))
                    .or_input();
            };
            let source = format!("{}, {}", cell(3), cell(4));
            prices.push(UpgradePrice { kind: cell(0), name: cell(1), price: Dollars::new(price), source });
        }
        Ok(Self(prices))
    }

    fn price(&self, kind: &str, name: &str) -> Option<&UpgradePrice> {
        self.0.iter().find(|price| price.kind == kind && price.name == name)
    }
}

/// What runs best without one kind of the machine's GPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WithoutGpus {
    /// The GPUs that are left out.
    pub gpus: String,
    /// The best that then runs; `None` where nothing does.
    pub row: Option<AdviceRow>,
}

/// What runs best without each kind of GPU, where there are several.
pub(super) fn without_each_kind(
    machine: &AdvisedMachine,
    question: &AdviceQuestion,
    entry: &CataloguedModel,
    newest: u64,
) -> Vec<WithoutGpus> {
    let kinds = machine.composition.iter().filter(|names| names.gpus.len() > 1);
    let removals = kinds.flat_map(|names| (0..names.gpus.len()).map(move |index| (names, index)));
    let without = |(names, index): (&PartNames, usize)| {
        let mut fewer = names.clone();
        let gpus = fewer.gpus.remove(index).in_words();
        WithoutGpus { gpus, row: best_row(fewer, question, entry, newest) }
    };
    removals.map(without).collect()
}

/// The best that runs on a machine of these parts.
fn best_row(
    names: PartNames,
    question: &AdviceQuestion,
    entry: &CataloguedModel,
    newest: u64,
) -> Option<AdviceRow> {
    let machine = AdvisedMachine::composed(names, vec![], vec![]).ok()?;
    let site = EngineOnMachine::new(&machine.machine, question).ok()?;
    let formats = question.formats(entry.own_format());
    let rows = formats.iter().filter_map(|format| outcome(&site, question, entry, format, newest).ok());
    rows.max_by(|a, b| worth(a).total_cmp(&worth(b)))
}

/// A purchase, and the machine after it.
struct Purchase<'a> {
    kind: usize,
    change: String,
    price: Dollars,
    source: &'a str,
    names: PartNames,
}

/// What one purchase for `machine` brings the model: those that make the best answer better, by
/// price, of each kind only those that are better than all cheaper ones.
pub(super) fn upgrades(
    machine: &AdvisedMachine,
    question: &AdviceQuestion,
    entry: &CataloguedModel,
    now: &[AdviceRow],
    prices: &UpgradePrices,
    newest: u64,
) -> Vec<Upgrade> {
    let Some(names) = &machine.composition else { return vec![] };
    let bought = purchases(names, prices);
    let judged = bought.par_iter().map(|purchase| best_row(purchase.names.clone(), question, entry, newest));
    let judged: Vec<Option<AdviceRow>> = judged.collect();
    let mut found: Vec<(usize, Upgrade)> = bought
        .into_iter()
        .zip(judged)
        .filter_map(|(purchase, row)| {
            let Purchase { kind, change, price, source, .. } = purchase;
            Some((kind, Upgrade { change, price, price_source: source.to_owned(), row: row? }))
        })
        .collect();
    found.sort_by(|(_, a), (_, b)| a.price.total_cmp(&b.price));
    let before = now.iter().map(worth).fold(0.0, f64::max);
    let mut best = [before; KINDS];
    let mut told = [0; KINDS];
    found.retain(|(kind, upgrade)| {
        let better = worth(&upgrade.row) > best[*kind] * WORTH_TELLING && told[*kind] < TOLD;
        if better {
            best[*kind] = worth(&upgrade.row);
            told[*kind] += 1;
        }
        better
    });
    found.into_iter().map(|(_, upgrade)| upgrade).collect()
}

/// How good a row is, whether fast enough or not.
fn worth(row: &AdviceRow) -> f64 {
    row.score
}

/// Kinds of purchases: memory, faster memory, a GPU instead of the present ones, one beside them.
const KINDS: usize = 4;

fn purchases<'a>(names: &PartNames, prices: &'a UpgradePrices) -> Vec<Purchase<'a>> {
    let mut all = Vec::new();
    let Ok(Profile::Cpu(cpu)) = Library::default().profile(&names.cpu) else { return all };
    let unified = names.gpus.iter().any(|gpu| gpu.host_link.is_none() && names.link.is_none());
    if cpu.dram.channels.is_some() && cpu.dram.capacity.is_none() && !cpu.dram.kind.contains("LPDDR") {
        all.extend(memory(names, &cpu, prices));
        all.extend(faster_memory(names, &cpu, prices));
    }
    let laptop = names.gpus.iter().any(|gpu| gpu.part.ends_with("laptop"));
    if !unified && !laptop {
        all.extend(gpus(names, prices));
    }
    all
}

/// The price of one gigabyte of the CPU's kind of modules.
fn per_gigabyte<'a>(cpu: &CpuPart, names: &PartNames, prices: &'a UpgradePrices) -> Option<&'a UpgradePrice> {
    let kind = modules_of(names).map_or(&cpu.dram.kind, |modules| &modules.kind);
    let kind = if kind.contains("DDR4") { "DDR4" } else { "DDR5" };
    let registered = cpu.dram.channels.as_ref().is_some_and(|channels| channels.value > 2);
    prices.price(if registered { "registered" } else { "memory" }, kind)
}

fn modules_of(names: &PartNames) -> Option<&MemoryModules> {
    names.dram.as_ref().and_then(|dram| dram.modules.as_ref())
}

fn capacity_of(names: &PartNames) -> Option<Bytes> {
    names.dram.as_ref().and_then(|dram| dram.capacity.as_ref()).map(|capacity| capacity.value)
}

/// The memory times 2, 3, 4, 6 and 8, as far as boards go: 256 GB on two channels, 256 GB on each
/// channel of a server.
fn memory<'a>(names: &PartNames, cpu: &CpuPart, prices: &'a UpgradePrices) -> Vec<Purchase<'a>> {
    let (Some(now), Some(price)) = (capacity_of(names), per_gigabyte(cpu, names, prices)) else {
        return vec![];
    };
    let channels = cpu.dram.channels.as_ref().map_or(2, |channels| channels.value);
    let sockets = names.sockets.as_ref().map_or(1, |sockets| sockets.count);
    let most = if channels > 2 { 256.0 * (channels * sockets) as f64 } else { 256.0 };
    let more = [2, 3, 4, 6, 8].map(|times| now * times);
    let more = more.into_iter().filter(|bytes| bytes.gigabytes() <= most);
    more.map(|bytes| {
        let stated = Sourced::estimated(bytes, "bought");
        let dram = DramChoice { capacity: Some(stated), ..names.dram.clone().unwrap_or_default() };
        Purchase {
            kind: 0,
            change: format!("{bytes} of memory"),
            price: price.price * bytes.saturating_sub(now).gigabytes(),
            source: &price.source,
            names: PartNames { dram: Some(dram), ..names.clone() },
        }
    })
    .collect()
}

/// The same memory in faster modules, all of which are bought.
fn faster_memory<'a>(names: &PartNames, cpu: &CpuPart, prices: &'a UpgradePrices) -> Vec<Purchase<'a>> {
    let (Some(now), Some(price)) = (capacity_of(names), per_gigabyte(cpu, names, prices)) else {
        return vec![];
    };
    let own = cpu.dram.kind.parse::<MemoryModules>().ok();
    let Some(modules) = modules_of(names).cloned().or(own) else { return vec![] };
    let speeds = SPEEDS.iter().find(|(kind, _)| *kind == modules.kind).map_or([0; 2], |(_, speeds)| *speeds);
    let faster = speeds.into_iter().filter(|speed| *speed > modules.rate);
    faster
        .filter(|_| cpu.dram.channels.as_ref().is_some_and(|channels| channels.value <= 2))
        .map(|rate| {
            let modules = MemoryModules { rate, ..modules.clone() };
            let change = format!("{now} of {}-{rate}", modules.kind);
            let dram = DramChoice { modules: Some(modules), ..names.dram.clone().unwrap_or_default() };
            let names = PartNames { dram: Some(DramChoice { bandwidth: None, ..dram }), ..names.clone() };
            Purchase { kind: 1, change, price: price.price * now.gigabytes(), source: &price.source, names }
        })
        .collect()
}

/// Each GPU that is sold instead of the present ones, and those of the same maker beside them: one
/// program does not reach others.
fn gpus<'a>(names: &PartNames, prices: &'a UpgradePrices) -> Vec<Purchase<'a>> {
    let link = names.link.clone().unwrap_or_else(|| "pcie4-x16".to_owned());
    let with = |gpus: Vec<GpuChoice>| PartNames { gpus, link: Some(link.clone()), ..names.clone() };
    let [for_present, beside_present] = match &names.gpus[..] {
        [] => [String::new(), String::new()],
        [one] => [format!(" for {}", one.in_words()), format!(" beside {}", one.in_words())],
        _ => [" for all GPUs".to_owned(), " beside these".to_owned()],
    };
    let maker = |name: &str| match Library::default().profile(name) {
        Ok(Profile::Gpu(gpu)) => gpu.maker(),
        _ => None,
    };
    let makers: Vec<_> = names.gpus.iter().map(|gpu| maker(&gpu.part)).collect();
    let sold = || prices.0.iter().filter(|price| price.kind == "gpu");
    let instead = sold()
        .filter(|sold| names.gpus.iter().all(|gpu| gpu.part != sold.name))
        .map(|sold| (2, format!("{}{for_present}", sold.name), sold, with(vec![GpuChoice::one(&sold.name)])));
    let like = |sold: &&UpgradePrice| !makers.is_empty() && makers.iter().all(|it| *it == maker(&sold.name));
    let beside = sold().filter(like).map(|sold| {
        let mut gpus = names.gpus.clone();
        let change = match gpus.iter_mut().find(|gpu| gpu.part == sold.name) {
            Some(same) => {
                same.count += 1;
                format!("one more {}", sold.name)
            }
            None => {
                gpus.push(GpuChoice::one(&sold.name));
                format!("{}{beside_present}", sold.name)
            }
        };
        (3, change, sold, with(gpus))
    });
    let purchase = |(kind, change, sold, names): (usize, String, &'a UpgradePrice, PartNames)| Purchase {
        kind,
        change,
        price: sold.price,
        source: &sold.source,
        names,
    };
    instead.chain(beside).map(purchase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_price_is_of_a_shipped_part_or_of_memory() {
        for price in UpgradePrices::usual().0 {
            assert!(price.source.len() > 8, "{price:?}");
            match &*price.kind {
                "gpu" => assert!(
                    matches!(Library::default().profile(&price.name), Ok(Profile::Gpu(_))),
                    "{price:?}"
                ),
                kind => assert!(["memory", "registered"].contains(&kind), "{price:?}"),
            }
        }
    }

    #[test]
    fn a_table_of_prices_that_is_wrong_is_refused_with_its_line() {
        for (text, words) in [
            ("kind,name,usd,date\n", "source"),
            ("kind,name,usd,date,source\ngpu,rtx-3090,0,2025,me\n", "above 0"),
            ("kind,name,usd,date,source\ngpu,rtx-3090,cheap,2025,me\n", "prices.csv:2"),
        ] {
            let error = UpgradePrices::from_csv(text, "prices.csv").expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
