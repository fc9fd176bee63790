//! What it means: predicted against measured, plots, HTML.
