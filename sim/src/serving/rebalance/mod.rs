//! Rebalancing: an engine changes its plan when step times, or requests, no longer match those that
//! it was made for.
//!
//! Alternative plans are made before the day begins, with tables of their step times
//! ([`ForecastTables`]). While the engines work, a [`Rebalancer`] looks at them at regular times.
//! It compares how long each device was busy with the planned time ([`planner::Monitor`]) and
//! watches which requests come ([`Demand`]). From these it forecasts the times of every alternative
//! in microseconds. If one is clearly better than the present plan, and moving its weights and KV
//! cache over the links costs less than it gains, the engines stand still for the move and continue
//! with the new plan.

mod demand;
mod forecast_tables;
mod multi_plan_prices;
mod rebalancer;

pub use demand::Demand;
pub use forecast_tables::{ForecastTables, PlanForecast};
pub use multi_plan_prices::{DeviceTimes, MultiPlanPrices, SwitchablePrices};
pub use rebalancer::{PlanAlternative, PlanMove, RebalanceRecord, Rebalancer, WallClock};
