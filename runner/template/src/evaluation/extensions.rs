//! Evaluates the intrinsic functions of the transform `AWS::LanguageExtensions`. `Fn::ForEach` is
//! not supported; `macros` reports it.

use crate::{
    diagnostic::Span,
    evaluation::resolver::Resolver,
    evaluation::value::Data,
    syntax::node::{Kind, Node},
    syntax::plain_scalar,
};

/// The result of converting a value to JSON.
enum Json {
    Text(String),
    /// The value is `AWS::NoValue`, which removes the property.
    Absent,
    /// A part of the value is known only on AWS.
    Elsewhere(String),
}

impl Resolver<'_> {
    /// Evaluates `Fn::Length`, the number of elements of a list.
    pub(crate) fn length(&self, argument: &Node, at: Span) -> Option<Data> {
        match self.resolve(argument)?.data {
            Data::List(items) => Some(Data::Text(items.len().to_string())),
            elsewhere @ Data::Elsewhere(_) => Some(elsewhere),
            _ => self.wrong_arguments("!Length", "a list", at),
        }
    }

    /// Evaluates `Fn::ToJsonString`, which converts an object or a list to a JSON string.
    pub(crate) fn to_json(&self, argument: &Node, at: Span) -> Option<Data> {
        if !matches!(argument.kind, Kind::Map(_) | Kind::List(_) | Kind::Call(..)) {
            return self.wrong_arguments("!ToJsonString", "an object or a list", at);
        }
        Some(match self.json(argument)? {
            Json::Text(text) => Data::Text(self.spend(at, text)?),
            Json::Absent => Data::Absent,
            Json::Elsewhere(elsewhere) => Data::Elsewhere(elsewhere),
        })
    }

    fn json(&self, node: &Node) -> Option<Json> {
        let Some(node) = self.choose(node)? else { return Some(Json::Absent) };
        match &node.kind {
            Kind::Text(text) => Some(Json::Text(self.scalar(node, text))),
            Kind::List(items) => self.joined(items.iter().map(|item| (None, item)), '[', ']'),
            Kind::Map(entries) => {
                let named = entries.iter().map(|entry| (Some(entry.key.as_str()), &entry.value));
                self.joined(named, '{', '}')
            }
            Kind::Call(..) => self.json_of_call(node),
            Kind::Null | Kind::Unknown => {
                self.resolve(node)?;
                None
            }
        }
    }

    /// Formats the elements of a list or an object as JSON. For an object, each element has a name.
    fn joined<'n>(
        &self,
        elements: impl Iterator<Item = (Option<&'n str>, &'n Node)>,
        open: char,
        close: char,
    ) -> Option<Json> {
        let mut text = String::from(open);
        let mut elsewhere = None;
        for (name, node) in elements {
            let element = match self.json(node)? {
                Json::Text(element) => element,
                Json::Absent => continue,
                Json::Elsewhere(of) => {
                    elsewhere = elsewhere.or(Some(of));
                    continue;
                }
            };
            if text.len() > 1 {
                text.push(',');
            }
            if let Some(name) = name {
                text.push_str(&quoted(name));
                text.push(':');
            }
            text.push_str(&element);
        }
        text.push(close);
        Some(elsewhere.map_or(Json::Text(text), Json::Elsewhere))
    }

    fn json_of_call(&self, node: &Node) -> Option<Json> {
        let value = self.resolve(node)?;
        Some(match value.data {
            Data::Absent => Json::Absent,
            Data::Elsewhere(elsewhere) => Json::Elsewhere(elsewhere),
            Data::List(items) => {
                let mut texts = Vec::with_capacity(items.len());
                for item in items {
                    match item.data {
                        Data::Elsewhere(_) | Data::Stream(_) => {
                            return Some(Json::Elsewhere(item.reference()?));
                        }
                        _ => texts.push(quoted(&item.text(self.findings)?)),
                    }
                }
                Json::Text(format!("[{}]", texts.join(",")))
            }
            Data::Stream(_) => Json::Elsewhere(value.reference()?),
            Data::Text(_) => Json::Text(quoted(&value.text(self.findings)?)),
        })
    }

    /// Formats a scalar as the JSON type that a YAML parser assigns to it.
    fn scalar(&self, node: &Node, text: &str) -> String {
        let typed = plain_scalar::typed(text).filter(|_| self.findings.is_plain(node.at, text));
        typed.unwrap_or_else(|| quoted(text))
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
