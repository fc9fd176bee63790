//! A plan in words: what binds it, what is left over, where everything is, and what more memory would bring.

use crate::cost::Pricing;
use crate::course::Course;
use crate::error::PlannerError;
use crate::goal::Goal;
use crate::layer_group::LayerGroup;
use crate::memory::Programs;
use crate::part::{Part, Parts};
use crate::plan::{Plan, Times};
use crate::roofline::{Binding, Roofline};
use crate::solve::Effort;
use crate::space::{Family, Space};
use hwprofiles::{Bytes, Machine, Seconds};
use scenarios::{Model, Phase, Sublayer};
use std::fmt::{self, Write};

/// How much more of a memory is tried out.
const MORE: f64 = 1.1;

/// Explains `plan`, made for `machine` and `model`, in lines of at most 80 columns.
///
/// # Errors
/// [`PlannerError::Plan`] where the plan was made for something else.
pub fn explain(plan: &Plan, machine: &Machine, model: &Model) -> Result<String, PlannerError> {
    let placement = plan.placement(machine, model)?;
    let programs = Programs::lower(machine, model, &placement)?;
    let pricing = Pricing { machine, model, formats: &plan.formats };
    let load = &plan.workload;
    let course = Course::new(load.batch, load.prompt_tokens, load.output_tokens, plan.prefill_chunk);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, plan)
        .and_then(|()| places(&mut text, plan))
        .and_then(|()| memory(&mut text, plan, machine));
    for phase in [Phase::Prefill, Phase::Decode] {
        let mut total = Roofline::default();
        for step in course.kinds(phase).iter().flatten() {
            total = total.then(&Roofline::of(&pricing, programs.of(phase), step)?);
        }
        let _ = binding(&mut text, phase, &total, machine);
    }
    let _ = comparison(&mut text, plan);
    worth(&mut text, plan, pricing, &course)?;
    Ok(text)
}

fn head(text: &mut String, plan: &Plan) -> fmt::Result {
    let load = &plan.workload;
    writeln!(
        text,
        "{} on {}, weights {}, KV {}",
        plan.model.name, plan.machine.name, plan.formats.weights, plan.formats.kv
    )?;
    writeln!(
        text,
        "batch {}, {} prompt tokens ({} at a time), {} output tokens, for {}",
        load.batch, load.prompt_tokens, plan.prefill_chunk, load.output_tokens, plan.objective
    )
}

fn places(text: &mut String, plan: &Plan) -> fmt::Result {
    let words = plan.layers.iter().flat_map(LayerGroup::parts).map(|(sublayer, _)| sublayer.name().len());
    let wide = words.fold(10, usize::max);
    writeln!(text, "\n{:<7} {:<wide$} {:<17} {:<17} decode", "layers", "sublayer", "home", "prefill")?;
    let mut rows = |layers: &str, sublayer: &str, parts: &Parts| -> fmt::Result {
        let list = |word: fn(&Part) -> &String| {
            let words: Vec<_> = parts.0.iter().map(|part| word(part).as_str()).collect();
            if words.windows(2).all(|pair| pair[0] == pair[1]) {
                words[0].to_owned()
            } else {
                words.join(" + ")
            }
        };
        let shares: Vec<_> =
            parts.0.iter().filter_map(|p| p.share).map(|s| format!("{:.0} %", s * 100.0)).collect();
        let (home, prefill, decode) = (list(|p| &p.home), list(|p| &p.prefill), list(|p| &p.decode));
        let line = format!("{layers:<7} {sublayer:<wide$} {home:<17} {prefill:<17} {decode}");
        writeln!(text, "{}", line.trim_end())?;
        if shares.is_empty() {
            Ok(())
        } else {
            writeln!(text, "{:<1$} {2}", "", wide + 8, shares.join(" + "))
        }
    };
    rows("", "embed", &plan.embed)?;
    for group in &plan.layers {
        let layers = match group.count {
            1 => group.first.to_string(),
            count => format!("{}-{}", group.first, group.first + count - 1),
        };
        for (sublayer, parts) in group.parts() {
            rows(if sublayer == Sublayer::Qkv { &layers } else { "" }, sublayer.name(), parts)?;
        }
    }
    rows("", "head", &plan.head)
}

fn memory(text: &mut String, plan: &Plan, machine: &Machine) -> fmt::Result {
    let line = ["memory", "weights", "KV", "activations", "staging", "used of", "holds"];
    let [a, b, c, d, e, f, g] = line;
    writeln!(text, "\n{a:<10} {b:>9} {c:>9} {d:>11} {e:>9} {f:>9} {g:>9}")?;
    for memory in &machine.memories {
        let Some(used) = plan.memory.get(&memory.name) else { continue };
        let capacity = memory.capacity.value;
        let share = 100.0 * used.total().as_f64() / capacity.as_f64().max(1.0);
        writeln!(
            text,
            "{:<10} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9}  {share:>4.1} %",
            memory.name,
            used.weights,
            used.kv,
            used.activations,
            used.staging,
            used.total(),
            capacity
        )?;
    }
    Ok(())
}

/// What sets the pace of a phase, and how busy everything else is meanwhile.
fn binding(text: &mut String, phase: Phase, roofline: &Roofline, machine: &Machine) -> fmt::Result {
    let (bound, binding) = roofline.bound();
    let what = match binding {
        Binding::Chain => "the chain of its tasks".to_owned(),
        Binding::Lane(lane) => format!("{}, which is never idle", lane.name(machine)),
        Binding::Memory(memory) => format!("the bandwidth of {}", machine.memory(memory).name),
    };
    writeln!(text, "\n{phase}: at least {bound}, bound by {what}")?;
    let share = |time: Seconds| 100.0 * (time / bound);
    let mut busy: Vec<(String, f64)> = vec![("chain".to_owned(), share(roofline.critical_path))];
    busy.extend(roofline.lanes.iter().map(|(lane, &time)| (lane.name(machine).to_owned(), share(time))));
    let memory = |(&id, &time)| (format!("{} bandwidth", machine.memory(id).name), share(time));
    busy.extend(roofline.memories.iter().map(memory));
    for (name, share) in busy {
        writeln!(text, "  {name:<22} {share:>5.1} % busy, {:>5.1} % slack", 100.0 - share)?;
    }
    Ok(())
}

fn comparison(text: &mut String, plan: &Plan) -> fmt::Result {
    let predicted = &plan.predicted;
    writeln!(text, "\n{:<22} {:>10} {:>10}", "", "TTFT", "TPOT")?;
    let mut row = |name: &str, times: &Times| {
        let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
        writeln!(text, "{name:<22} {:>10} {tpot:>10}", times.ttft)
    };
    row(&format!("{}, bound", predicted.chosen), &predicted.bound)?;
    row(&format!("{}, simulated", predicted.chosen), &predicted.simulated)?;
    for (name, times) in &predicted.baselines {
        row(name, times)?;
    }
    for (name, reason) in &predicted.without {
        wrapped(text, &format!("without {name}: {reason}"))?;
    }
    if predicted.chosen != crate::PLANNED {
        wrapped(text, &format!("No plan of the solver beats {}: it is followed.", predicted.chosen))?;
    }
    Ok(())
}

/// What the solver's best would gain from more of each memory.
fn worth(text: &mut String, plan: &Plan, pricing: Pricing<'_>, course: &Course) -> Result<(), PlannerError> {
    let goal = Goal::new(pricing.machine, &plan.workload, plan.objective, plan.slo, &plan.costs)?;
    let space = Space::new(pricing, course, &goal)?;
    let capacity = space.capacity();
    let best = |capacity: &[Bytes]| {
        let solved = space.solve(Family::ALL, &goal, capacity, Effort::PLAN)?;
        Ok::<_, PlannerError>(solved.map(|chosen| chosen.value))
    };
    let Some(now) = best(&capacity)? else { return Ok(()) };
    let _ = writeln!(text, "\n10 % more of");
    for (index, memory) in pricing.machine.memories.iter().enumerate() {
        let mut more = capacity.clone();
        more[index] = Bytes::new((capacity[index].as_f64() * MORE) as u64);
        // What fitted before fits still: the search's tolerance is no loss.
        let then = best(&more)?.map_or(now, |then| then.min(now));
        let gain = 100.0 * (1.0 - then / now);
        let _ = match gain < 0.1 {
            true => writeln!(text, "  {:<22} brings nothing", memory.name),
            false => writeln!(text, "  {:<22} makes the bound {gain:.1} % faster", memory.name),
        };
    }
    Ok(())
}

/// One paragraph in lines of at most 80 columns.
fn wrapped(text: &mut String, paragraph: &str) -> fmt::Result {
    const WIDTH: usize = 80;
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            writeln!(text)?;
            column = 0;
        }
        if column > 0 {
            write!(text, " ")?;
            column += 1;
        }
        write!(text, "{word}")?;
        column += length;
    }
    writeln!(text)
}
