//! A measured host as others may have it: without the names and paths of those who measured it.

use crate::files::{plain_name, yaml};
use crate::parts::host::file::Host;
use serde_json::Value;

impl Host {
    /// The same measurements under `name`; of the command that measured them, `fulcrum bench` is
    /// left, without its options, which name files.
    pub fn shared(&self, name: &str) -> Self {
        let named = Self { host: name.to_owned(), ..self.clone() };
        let mut document: Value = yaml::read(&named.to_yaml(), name).expect("what was written is read back");
        forget_commands(&mut document);
        yaml::read(&document.to_string(), name).expect("what was written is read back")
    }

    /// A name made of the processor, the number of its cores and the GPU: `xeon-8481c-2-cores`.
    pub fn part_name(&self) -> String {
        let model = plain_name(&self.cpu.model).replace("(r)", "").replace("(tm)", "");
        let model = model.split('@').next().unwrap_or_default();
        let cores = format!("{}-cores", self.cpu.cores.len());
        let gpu = self.gpu.as_option().map(|gpu| plain_name(&gpu.part.gpu));
        let words = [model.to_owned(), cores].into_iter().chain(gpu);
        let words: Vec<String> = words
            .flat_map(|text| {
                let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
                parts.map(str::to_owned).collect::<Vec<_>>()
            })
            .filter(|word| !matches!(word.as_str(), "" | "cpu" | "processor" | "intel" | "amd"))
            .collect();
        words.join("-")
    }
}

/// Shortens the command of every measurement.
fn forget_commands(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            if let Some(Value::String(command)) =
                entries.get_mut("measured").and_then(|measured| measured.get_mut("command"))
            {
                "fulcrum bench".clone_into(command);
            }
            entries.values_mut().for_each(forget_commands);
        }
        Value::Array(list) => list.iter_mut().for_each(forget_commands),
        _ => {}
    }
}
