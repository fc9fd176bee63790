//! Tables of plans, from the grid to the file and back.

use crate::fixture::{Spec, formats, model};
use crate::scorer::roofline_times;
use hwprofiles::{Machine, Ratio};
use planner::{
    CostModel, GridCell, PhasePrograms, Placement, PlanTable, PlannerError, Problem, RunExtent, plan_grid,
    usage,
};
use proptest::prelude::*;
use scenarios::{Costs, Model, Objective, Requirements, Slo, Sublayer, Workload};

const OUTPUT: u64 = 32;

fn cells(batches: &[u64], prompts: &[u64]) -> Vec<GridCell> {
    let cell = |batch, prompt_tokens| GridCell { batch, prompt_tokens, weight: Ratio::ONE };
    batches.iter().flat_map(|&batch| prompts.iter().map(move |&prompt| cell(batch, prompt))).collect()
}

fn tabled(machine: &Machine, model: &Model, cells: &[GridCell]) -> Result<PlanTable, PlannerError> {
    let formats = formats();
    let problem = Problem {
        cost_model: CostModel { machine, model, formats: &formats },
        draft: None,
        requirements: Requirements {
            workload: Workload { batch: 1, prompt_tokens: 1, output_tokens: OUTPUT, speculation: None },
            objective: Objective::Latency,
            slo: Slo::default(),
            costs: Costs::default(),
        },
    };
    let score = |workload: &Workload, placement: &Placement, chunk| {
        roofline_times(machine, model, workload, placement, chunk)
    };
    plan_grid(&problem, cells, &score)
}

fn placements(table: &PlanTable, machine: &Machine, model: &Model) -> Vec<Placement> {
    let (again, placements) = PlanTable::read(&table.to_yaml(), "table.yaml", machine, model).unwrap();
    assert_eq!(&again, table);
    placements
}

/// The rows of every matrix with their homes, layer by layer.
fn weight_homes(placement: &Placement) -> Vec<(Option<u32>, Sublayer, u64, usize)> {
    let matrices = placement.sublayers().filter(|(_, sublayer, _)| *sublayer != Sublayer::Attention);
    matrices
        .flat_map(|(layer, sublayer, slices)| {
            slices.iter().map(move |slice| (layer, sublayer, slice.rows.end, slice.home.0))
        })
        .collect()
}

fn specs() -> [Spec; 3] {
    [Spec::loopback(2_000_000), Spec::gpu(6_000_000), Spec { cxl: Some(1 << 34), ..Spec::gpu(5_000_000) }]
}

#[test]
fn all_cells_without_a_switch_share_the_homes_of_all_weights_and_fit() {
    let (model, formats) = (model(6, 256), formats());
    for spec in specs() {
        let machine = spec.machine(&model);
        let table = tabled(&machine, &model, &cells(&[1, 4, 16], &[32, 256])).unwrap();
        assert_eq!(table.cells.len(), 6);
        let placements = placements(&table, &machine, &model);
        let shared: Vec<_> = table.cells.iter().filter(|cell| cell.switch.is_none()).collect();
        assert!(!shared.is_empty());
        let homes = |index: usize| weight_homes(&placements[index]);
        assert!(shared.iter().all(|cell| homes(cell.placement) == homes(shared[0].placement)));
        for cell in &table.cells {
            let (placement, workload) = (&placements[cell.placement], table.workload(cell));
            let extent = RunExtent {
                batch: cell.batch,
                context: workload.context(),
                chunk: cell.prefill_chunk,
                step_tokens: 1,
            };
            let programs = PhasePrograms::lower(&machine, &model, placement).unwrap();
            let used = usage(&machine, &model, &formats, placement, &programs, &extent);
            for (memory, used) in machine.memories.iter().zip(used) {
                assert!(used.total() <= memory.capacity.value, "{} holds too much", memory.name);
            }
        }
    }
}

#[test]
fn a_cell_alone_shares_with_nobody_and_loses_nothing() {
    let model = model(4, 256);
    for spec in specs() {
        let machine = spec.machine(&model);
        let table = tabled(&machine, &model, &cells(&[4], &[96])).unwrap();
        let cell = table.cells[0];
        assert_eq!((cell.simulated.ttft, cell.switch), (cell.own.ttft, None));
        assert_eq!(table.sharing.slowdown, Ratio::ONE);
    }
}

#[test]
fn cells_that_cannot_be_are_listed_with_their_reason() {
    let model = model(4, 256);
    let spec = Spec { capacity: [16_000_000, 2_000_000], ..Spec::gpu(0) };
    let machine = spec.machine(&model);
    let table = tabled(&machine, &model, &cells(&[1, 64], &[32, 1024])).unwrap();
    assert!(!table.cells.is_empty() && !table.without.is_empty(), "{}", table.to_yaml());
    for cell in &table.without {
        assert!(cell.reason.contains("nothing fits"), "{}", cell.reason);
    }
    assert_eq!(table.cells.len() + table.without.len(), 4);
    // Without any possible cell there is no table.
    assert!(matches!(
        tabled(&machine, &model, &cells(&[512], &[1024])),
        Err(PlannerError::Infeasible { .. } | PlannerError::NoPlacement { .. })
    ));
}

#[test]
fn a_cell_is_found_for_what_is_no_larger() {
    let model = model(4, 256);
    let machine = Spec::gpu(4_000_000).machine(&model);
    let table = tabled(&machine, &model, &cells(&[2, 8], &[64, 128])).unwrap();
    let found = |batch, prompt| table.cell(batch, prompt).map(|cell| (cell.batch, cell.prompt_tokens));
    assert_eq!(found(1, 64), Some((2, 64)));
    assert_eq!(found(3, 65), Some((8, 128)));
    assert_eq!(found(9, 1), None);
}

#[test]
fn a_table_looks_like_this() {
    let model = model(3, 256);
    let machine = Spec::gpu(8_000_000).machine(&model);
    let table = tabled(&machine, &model, &cells(&[1, 16], &[64])).unwrap();
    insta::assert_snapshot!(table.to_yaml());
}

#[test]
fn a_table_for_something_else_is_refused() {
    let model = model(3, 256);
    let machine = Spec::gpu(3_000_000).machine(&model);
    let table = tabled(&machine, &model, &cells(&[1], &[64])).unwrap();
    let refused = |text: &str, machine: &Machine, model: &Model| {
        PlanTable::read(text, "table.yaml", machine, model).unwrap_err().to_string()
    };
    let text = table.to_yaml();
    let other = Spec::gpu(5_000_000).machine(&model);
    assert!(refused(&text, &other, &model).contains("machine"));
    assert!(refused(&text, &machine, &crate::fixture::model(4, 256)).contains("model"));
    assert!(refused(&text.replace("table: 1", "table: 2"), &machine, &model).contains("make the table anew"));
    let lost = text.replace("placement: 0", "placement: 7");
    assert!(refused(&lost, &machine, &model).contains("there are 1 placements"), "{lost}");
    let huge = text.replace("batch: 1", "batch: 18446744073709551615");
    assert!(refused(&huge, &machine, &model).contains("batch"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(200)))]

    #[test]
    fn a_changed_character_is_read_or_refused_but_never_a_panic(place in 0.0..1.0f64, character in " -~") {
        let model = model(3, 256);
        let machine = Spec::gpu(3_000_000).machine(&model);
        static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let text = TEXT.get_or_init(|| {
            tabled(&machine, &model, &cells(&[1, 16], &[64])).expect("fits").to_yaml()
        });
        let at = (place * text.len() as f64) as usize;
        let at = (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let end = (at + 1..=text.len()).find(|&end| text.is_char_boundary(end)).unwrap_or(text.len());
        let changed = format!("{}{character}{}", &text[..at], &text[end..]);
        if let Ok((table, _)) = PlanTable::read(&changed, "table.yaml", &machine, &model) {
            let again = PlanTable::from_yaml(&table.to_yaml(), "again.yaml").expect("what was written");
            let whole = PlanTable::from_yaml(text, "table.yaml").expect("what was written");
            prop_assert!(table.edited || table == whole, "no change of a number goes unseen");
            prop_assert_eq!(again, PlanTable { edited: false, ..table });
        }
    }
}
