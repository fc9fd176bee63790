//! Reproductions as CSV and JSON.

use super::Reproductions;
use serde_json::{Value, json};

impl Reproductions {
    /// CSV with a row for each published number.
    pub fn to_csv(&self) -> Vec<u8> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let head = [
            "system",
            "id",
            "hardware",
            "what",
            "table",
            "metric",
            "unit",
            "certainty",
            "published",
            "ours",
            "error",
            "answered_by",
            "standing",
            "why",
        ];
        let mut write =
            |cells: [String; 14]| writer.write_record(cells).expect("writing to memory cannot fail");
        write(head.map(str::to_owned));
        for it in &self.0 {
            for row in &it.rows {
                let number =
                    |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
                write([
                    it.id.clone(),
                    row.id.clone(),
                    row.hardware.clone(),
                    row.description.clone(),
                    row.table.clone(),
                    row.metric.clone(),
                    row.unit.clone(),
                    row.certainty.clone(),
                    number(row.published),
                    number(row.ours),
                    number(row.error()),
                    row.answered_by().to_owned(),
                    row.label().to_owned(),
                    row.standing.reason().to_owned(),
                ]);
            }
        }
        writer.into_inner().expect("writing to memory cannot fail")
    }

    /// JSON with all systems, rows and statistics.
    pub fn to_json(&self) -> Value {
        let systems = self.0.iter().map(|it| {
            let rows = it.rows.iter().map(|row| {
                json!({
                    "id": row.id, "table": row.table, "metric": row.metric, "unit": row.unit, "published": row.published,
                    "ours": row.ours, "error": row.error(), "answered_by": row.answered_by(), "standing": row.label(), "why": row.standing.reason(),
                })
            });
            json!({
                "id": it.id, "system": it.system, "source": it.source, "licence": it.licence, "verdict": it.verdict,
                "wanted": it.target_error, "score": it.score(), "missed": it.missed_targets(), "constants": it.constants,
                "rows": rows.collect::<Vec<_>>(),
            })
        });
        json!({
            "systems": systems.collect::<Vec<_>>(), "overall": self.score(), "headline": self.headline(),
            "by_formula": self.by_formula(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::reproductions;

    #[test]
    fn every_row_is_a_line_and_cells_are_quoted() {
        let csv = String::from_utf8(reproductions().to_csv()).expect("UTF-8");
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let rows: Vec<_> = reader.records().map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), reproductions().0[0].rows.len());
        assert_eq!((&rows[7][13], &rows[0][10]), ("a \"mock\", says its author", "0.10000000000000009"));
        let json = reproductions().to_json();
        assert_eq!(json["systems"][0]["rows"][0]["standing"], "scored");
        assert_eq!(json["overall"]["rows"], 4);
    }
}
