#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fulcrum_fuzz::llama_bench(bytes);
});
