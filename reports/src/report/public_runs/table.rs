//! Public runs as CSV and JSON.

use super::{LeftOut, PublicRows};
use serde_json::{Value, json};

impl PublicRows {
    /// CSV with a line for each row.
    pub fn to_csv(&self) -> Vec<u8> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let head = [
            "id",
            "setup",
            "engine",
            "machine",
            "model",
            "format",
            "placement",
            "phase",
            "past",
            "measured",
            "ours",
            "error",
            "why",
            "assumed",
            "source",
        ];
        let mut write =
            |cells: [String; 15]| writer.write_record(cells).expect("writing to memory cannot fail");
        write(head.map(str::to_owned));
        for row in &self.0 {
            let number = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
            write([
                row.id.clone(),
                row.setup.clone(),
                row.engine.clone(),
                row.machine.clone(),
                row.model.clone(),
                row.format.clone(),
                row.placement.clone(),
                row.phase.clone(),
                row.past.to_string(),
                row.measured.to_string(),
                number(row.ours),
                number(row.error()),
                row.why.clone(),
                row.assumed.clone(),
                row.source.clone(),
            ]);
        }
        writer.into_inner().expect("writing to memory cannot fail")
    }

    /// JSON with all rows and their statistics, and those of CPUs that were left out, where there
    /// are some.
    pub fn to_json(&self, left_out: Option<&LeftOut>) -> Value {
        json!({"rows": self.0, "summary": self.summary(), "left_out": left_out})
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;

    #[test]
    fn every_row_is_a_line() {
        let csv = String::from_utf8(rows().to_csv()).expect("UTF-8");
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let lines: Vec<_> = reader.records().map(|row| row.expect("a row")).collect();
        assert_eq!(lines.len(), rows().0.len());
        assert_eq!((&lines[0][11], &lines[3][12]), ("0.10000000000000009", "the model is not named"));
        assert_eq!(rows().to_json(None)["rows"].as_array().map(Vec::len), Some(lines.len()));
    }
}
