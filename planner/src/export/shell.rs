//! Words of a command line, quoted so that a shell reads them as they are.

/// `word` as one argument of a POSIX shell: in single quotes where it holds anything but plain
/// characters, and after `./` where it would be read as an option.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    let word = if word.starts_with('-') { format!("./{word}") } else { word.to_owned() };
    match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn plain_names_stay_as_they_are() {
        assert_eq!(quoted("llama-3.1-70b-Q4_0.gguf"), "llama-3.1-70b-Q4_0.gguf");
        assert_eq!(quoted("a folder/model"), "'a folder/model'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("-m"), "./-m");
        assert_eq!(quoted(""), "''");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(64)))]

        #[test]
        fn a_shell_reads_any_word_back(word in "[^\0-][^\0]{0,30}") {
            let output = Command::new("sh")
                .args(["-c", &format!("printf '%s' {}", quoted(&word))])
                .output()
                .expect("a shell");
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }
}
