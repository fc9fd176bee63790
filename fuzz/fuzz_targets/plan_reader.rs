//! Any text is read or refused, never a panic; a plan that is read is written and read back the
//! same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use planner::Plan;

fuzz_target!(|text: &str| {
    if let Ok(plan) = Plan::from_yaml(text, "fuzz") {
        let written = plan.to_yaml();
        assert_eq!(Plan::from_yaml(&written, "written").unwrap(), plan, "{written}");
    }
});
