//! Every preset gets a plan, on a machine whose GPU holds little of it.

use hwprofiles::{DType, Library, yaml};
use planner::{CostModel, Placement, Problem, plan};
use scenarios::{Costs, Formats, Model, Objective, Requirements, Slo, WeightFormats, Workload};

#[test]
fn every_preset_is_planned_and_its_plan_read_again() {
    let text = "parts: {cpu: xeon-8460h, dram: {capacity: {value: 8 TB, source: {estimated: {reason: test}}}}, \
                gpu: h100-sxm, link: pcie5-x16}";
    let machine = Library::default().compose(&yaml::read(text, "inline").unwrap()).unwrap();
    let weights = WeightFormats::all(DType::Bf16);
    let formats = Formats { weights, kv: DType::Bf16, activations: DType::Bf16 };
    let workload = Workload { batch: 2, prompt_tokens: 100, output_tokens: 8, speculation: None };
    for name in Model::preset_names() {
        let model = Model::preset(name).unwrap();
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let (objective, slo, costs) = (Objective::Latency, Slo::default(), Costs::default());
        let requirements = Requirements { workload, objective, slo, costs };
        let score = |placement: &Placement, chunk| sim::estimate(cost_model, placement, &workload, chunk);
        let plan = plan(&Problem { cost_model, draft: None, requirements }, &score)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let placement = plan.placement(&machine, &model).unwrap_or_else(|error| panic!("{name}: {error}"));
        let kinds = |layer: usize| placement.layers[layer].kind == model.kind(layer as u64);
        assert!((0..placement.layers.len()).all(kinds), "{name}");
        assert_eq!(placement.layers.len() as u64, model.layers, "{name}");
    }
}
