//! The answers to a page's questions.

use crate::error::{OrError, Result};
use crate::pipeline::{ResolvedPlan, plan_numbers};
use hwprofiles::Profile;
use planner::ExportTarget;
use scenarios::Model;
use serde_json::{Map, Value, json};

/// What can be chosen.
pub(super) fn catalog() -> Result<Value> {
    let mut lists: Map<String, Value> = Map::new();
    for (name, text) in hwprofiles::shipped() {
        let profile = Profile::from_yaml(text, name).or_failed()?;
        let list = match profile.kind() {
            "a machine" | "a composition" => "machines",
            "a GPU" => "gpus",
            "a CPU" => "cpus",
            "a link" => "links",
            _ => continue,
        };
        let list = lists.entry(list).or_insert_with(|| json!([]));
        let entry = json!({"name": name, "summary": profile.summary()});
        list.as_array_mut().expect("it was made as one").push(entry);
    }
    let model = |name| {
        let model = Model::preset(name).or_failed()?;
        Ok(json!({
            "name": name,
            "parameters": model.parameters().get(),
            "active_parameters": model.active_parameters().get(),
            "positions": model.max_positions,
        }))
    };
    lists.insert("models".to_owned(), Model::preset_names().map(model).collect::<Result<_>>()?);
    lists.insert("engines".to_owned(), ExportTarget::ALL.iter().map(|engine| engine.name()).collect());
    Ok(Value::Object(lists))
}

/// A plan: its numbers with their bands, its layers, and what each memory holds.
pub(super) fn plan(planned: &ResolvedPlan) -> Result<Value> {
    let ResolvedPlan { plan, machine, .. } = planned;
    let holds = machine.memories.iter().map(|it| (it.name.clone(), json!(it.capacity.value.get())));
    Ok(json!({
        "numbers": plan_numbers(plan),
        "bands": planned.bands()?,
        "embed": plan.embed,
        "layers": plan.layers,
        "head": plan.head,
        "holds": holds.collect::<Map<_, _>>(),
        "document": plan.to_yaml(),
    }))
}

/// What binds a plan, and what more would bring.
pub(super) fn explanation(ResolvedPlan { plan, machine, model, .. }: &ResolvedPlan) -> Result<Value> {
    let explained = planner::explain(plan, machine, model).or_failed()?;
    let mut json = json!(explained);
    json["text"] = Value::from(explained.to_string());
    Ok(json)
}

/// A plan as an engine's options.
pub(super) fn export(planned: &ResolvedPlan, engine: &str) -> Result<Value> {
    let target: ExportTarget = engine.parse().or_input()?;
    Ok(planned.exported(target)?.to_json())
}
