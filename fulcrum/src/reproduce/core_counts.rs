//! Rows of one run on several numbers of cores, which count once.

use reports::published::{ReproducedRow, Standing};
use scenarios::published::PublishedRow;
use std::collections::BTreeMap;

/// Why a twin does not count.
const TWIN: &str = "the same run on more cores counts";

/// The rows of which only the one with the most cores counts where several differ in nothing but
/// the cores of their hardware.
pub(crate) fn counted_once(published: &[PublishedRow], mut rows: Vec<ReproducedRow>) -> Vec<ReproducedRow> {
    let mut most: BTreeMap<Vec<String>, (u64, usize)> = BTreeMap::new();
    for (index, row) in published.iter().enumerate() {
        let Some((cores, hardware)) = row.cells.get("hardware").and_then(|text| cores_of(text)) else {
            continue;
        };
        if rows[index].standing != Standing::Scored {
            continue;
        }
        let setup = ["model", "batch", "input_len", "output_len", "precision", "baseline"];
        let cell = |name: &str| row.cells.get(name).cloned().unwrap_or_default();
        let run = setup.iter().map(|name| cell(name)).chain([hardware, row.metric.clone()]).collect();
        let shown = match most.get_mut(&run) {
            None => {
                most.insert(run, (cores, index));
                continue;
            }
            Some(kept) if cores == kept.0 => continue,
            Some(kept) if cores > kept.0 => std::mem::replace(kept, (cores, index)).1,
            Some(_) => index,
        };
        rows[shown].standing = Standing::Shown(TWIN.to_owned());
    }
    rows
}

/// The number in front of `cores`, and the text without it.
fn cores_of(hardware: &str) -> Option<(u64, String)> {
    let end = hardware.find(" cores")?;
    let begin = hardware[..end].rfind(|letter: char| !letter.is_ascii_digit()).map_or(0, |at| at + 1);
    let number = hardware[begin..end].parse().ok()?;
    Some((number, format!("{}{}", &hardware[..begin], &hardware[end..])))
}

#[cfg(test)]
mod tests {
    use super::cores_of;

    #[test]
    fn cores_are_read_from_the_hardware() {
        assert_eq!(cores_of("a Xeon (56c); 32 cores"), Some((32, "a Xeon (56c);  cores".to_owned())));
        assert_eq!(cores_of("a Xeon"), None);
        assert_eq!(cores_of("some cores"), None);
    }
}
