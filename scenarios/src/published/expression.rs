//! Arithmetic in a publication's file: `batch * output / (ttft + (output - 1) * tpot)`.

use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// An expression over named numbers.
///
/// It may use `+ - * /` and parentheses; comparisons `a < b` and `a > b`, which are 1 or 0; the
/// functions `min max ceil floor round log2 sqrt pow`; and `if(condition, then, else)`, in which a
/// condition above 0 is true and only the chosen branch is computed. Names consist of letters,
/// digits, `_` and dots.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    text: String,
    node: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Number(f64),
    Name(String),
    Binary(char, Box<[Node; 2]>),
    Call(Function, Vec<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Min,
    Max,
    Ceil,
    Floor,
    Round,
    Log2,
    Sqrt,
    Pow,
    If,
}

impl Function {
    const ALL: [(&'static str, Self); 9] = [
        ("min", Self::Min),
        ("max", Self::Max),
        ("ceil", Self::Ceil),
        ("floor", Self::Floor),
        ("round", Self::Round),
        ("log2", Self::Log2),
        ("sqrt", Self::Sqrt),
        ("pow", Self::Pow),
        ("if", Self::If),
    ];

    /// The number of arguments that it accepts.
    fn arity(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Self::Min | Self::Max => 1..=usize::MAX,
            Self::If => 3..=3,
            Self::Pow => 2..=2,
            _ => 1..=1,
        }
    }
}

impl Expression {
    /// A single number.
    pub fn number(value: f64) -> Self {
        Self { text: value.to_string(), node: Node::Number(value) }
    }

    /// Parses an expression.
    ///
    /// # Errors
    /// What is wrong, and where in the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let node = parser.comparison()?;
        match parser.peek() {
            None => Ok(Self { text: text.to_owned(), node }),
            Some(_) => Err(parser.wrong("an operator or the end")),
        }
    }

    /// Computes its value; `named` gives the values of names.
    ///
    /// # Errors
    /// A name is not defined, or the value is not finite.
    pub fn value(&self, named: &dyn Fn(&str) -> Option<f64>) -> Result<f64, String> {
        let value = self.node.value(named).map_err(|reason| format!("`{}`: {reason}", self.text))?;
        match value.is_finite() {
            true => Ok(value),
            false => Err(format!("`{}` is {value}: is something divided by zero?", self.text)),
        }
    }
}

impl Node {
    fn value(&self, named: &dyn Fn(&str) -> Option<f64>) -> Result<f64, String> {
        Ok(match self {
            Node::Number(number) => *number,
            Node::Name(name) => named(name).ok_or_else(|| format!("`{name}` is not known here"))?,
            Node::Binary(operator, sides) => {
                let [a, b] = [sides[0].value(named)?, sides[1].value(named)?];
                match operator {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    '/' => a / b,
                    '<' => f64::from(u8::from(a < b)),
                    _ => f64::from(u8::from(a > b)),
                }
            }
            Node::Call(Function::If, branches) => {
                let met = branches[0].value(named)? > 0.0;
                branches[if met { 1 } else { 2 }].value(named)?
            }
            Node::Call(function, values) => {
                let values = values.iter().map(|value| value.value(named)).collect::<Result<Vec<_>, _>>()?;
                match function {
                    Function::Min => values.into_iter().fold(f64::INFINITY, f64::min),
                    Function::Max => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
                    Function::Ceil => values[0].ceil(),
                    Function::Floor => values[0].floor(),
                    Function::Round => values[0].round(),
                    Function::Log2 => values[0].log2(),
                    Function::Pow => values[0].powf(values[1]),
                    Function::Sqrt | Function::If => values[0].sqrt(),
                }
            }
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Expression;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or an expression as \"1000 * tpot\"")
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Expression, E> {
                Ok(Expression::number(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Expression, E> {
                Ok(Expression::number(number as f64))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Expression, E> {
                Ok(Expression::number(number as f64))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Expression, E> {
                Expression::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The deepest nesting. Deeper expressions are typing errors and would overflow the stack.
const MAX_DEPTH: usize = 64;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, wanted: &[char]) -> Option<char> {
        let found = self.peek().filter(|c| wanted.contains(c))?;
        self.at += found.len_utf8();
        Some(found)
    }

    fn wrong(&self, wanted: &str) -> String {
        format!("`{}` goes on with `{}` where {wanted} is wanted", self.text, &self.text[self.at..])
    }

    fn comparison(&mut self) -> Result<Node, String> {
        self.chain(&['<', '>'], Self::sum)
    }

    fn sum(&mut self) -> Result<Node, String> {
        self.chain(&['+', '-'], Self::product)
    }

    fn product(&mut self) -> Result<Node, String> {
        self.chain(&['*', '/'], Self::operand)
    }

    fn chain(
        &mut self,
        operators: &[char],
        operand: impl Fn(&mut Self) -> Result<Node, String>,
    ) -> Result<Node, String> {
        let mut node = operand(self)?;
        while let Some(operator) = self.take(operators) {
            node = Node::Binary(operator, Box::new([node, operand(self)?]));
        }
        Ok(node)
    }

    fn operand(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("`{}` has more than {MAX_DEPTH} levels", self.text));
        }
        let node = match self.peek() {
            Some('(') => {
                self.take(&['(']);
                let inner = self.comparison()?;
                self.close()?;
                inner
            }
            Some('-') => {
                self.take(&['-']);
                Node::Binary('-', Box::new([Node::Number(0.0), self.operand()?]))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.literal()?,
            Some(c) if c.is_ascii_alphabetic() => self.name()?,
            _ => return Err(self.wrong("a number, a name or a parenthesis")),
        };
        self.depth -= 1;
        Ok(node)
    }

    fn close(&mut self) -> Result<(), String> {
        self.take(&[')']).map(|_| ()).ok_or_else(|| self.wrong("`)`"))
    }

    /// Takes characters while `belongs` accepts the character and the one before it.
    fn word(&mut self, belongs: impl Fn(char, char) -> bool) -> &str {
        let start = self.at;
        let mut before = ' ';
        for c in self.text[start..].chars() {
            if !belongs(c, before) {
                break;
            }
            (self.at, before) = (self.at + c.len_utf8(), c);
        }
        &self.text[start..self.at]
    }

    fn literal(&mut self) -> Result<Node, String> {
        let exponent = |c: char, before: char| c == 'e' || ("+-".contains(c) && before == 'e');
        let word = self.word(|c, before| c.is_ascii_digit() || c == '.' || exponent(c, before));
        let number = word.parse().map_err(|_| format!("`{word}` is no number"));
        Ok(Node::Number(number?))
    }

    fn name(&mut self) -> Result<Node, String> {
        let word = self.word(|c, _| c.is_ascii_alphanumeric() || c == '_' || c == '.').to_owned();
        if self.take(&['(']).is_none() {
            return Ok(Node::Name(word));
        }
        let function =
            Function::ALL.into_iter().find(|(name, _)| *name == word).map(|(_, function)| function);
        let known = Function::ALL.map(|(name, _)| name).join(", ");
        let function = function.ok_or_else(|| format!("`{word}` is no function: use one of {known}"))?;
        let mut values = vec![self.comparison()?];
        while self.take(&[',']).is_some() {
            values.push(self.comparison()?);
        }
        self.close()?;
        match function.arity().contains(&values.len()) {
            true => Ok(Node::Call(function, values)),
            false => Err(format!("{word}() of `{}` has {} values", self.text, values.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        Expression::parse(text)?.value(&|name| (name == "a.b").then_some(3.0))
    }

    #[test]
    fn arithmetic_has_the_usual_precedence() {
        let cases = [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("8 / 2 / 2", 2.0),
            ("2 - 3 - 4", -5.0),
            ("-a.b * 2", -6.0),
            ("1.5e-3 * 2e+3", 3.0),
            ("max(1, a.b, 2) + min(4, 5)", 7.0),
            ("if(2 > 1, 10, 1 / 0)", 10.0),
            ("if(2 < 1, missing, ceil(1.2))", 2.0),
            ("log2(8) + sqrt(16) + floor(1.9) + round(2.6) + pow(2, 3)", 19.0),
        ];
        for (text, wanted) in cases {
            assert_eq!(value(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let cases = [
            ("1 +", "goes on with ``"),
            ("1 2", "an operator"),
            ("(1", "`)`"),
            ("foo(1)", "no function"),
            ("if(1, 2)", "has 2 values"),
            ("1 / 0", "divided by zero"),
            ("c", "`c` is not known"),
            ("1e", "no number"),
        ];
        for (text, wanted) in cases {
            let error = value(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
        assert!(value(&"(".repeat(10_000)).is_err());
    }
}
