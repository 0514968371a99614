//! Restores and erasures: their conversion from the fields of a form, and to requests and commands.

use client::output::shell_word;
use operations::archive::contents::{EraseRequest, RestoreRequest};

use super::view::{EraseForm, RestoreForm};
use crate::error::PageError;
use crate::query::Query;

impl RestoreForm {
    /// Parses the fields of the form of a restore.
    ///
    /// # Errors
    /// The field `table` is missing.
    pub(crate) fn of(fields: &Query) -> Result<Self, PageError> {
        let text = |name: &str| fields.get(name).map(str::to_owned);
        Ok(Self {
            table: table(fields)?,
            key: text("key"),
            condition: text("where"),
            day: text("dt"),
            as_of: text("as_of"),
            all: text("all").is_some(),
            ttl: text("ttl").unwrap_or_else(|| "strip".to_owned()),
        })
    }

    /// Returns the fields of the form.
    pub(crate) fn fields(&self) -> Vec<(&'static str, &str)> {
        let optional = [
            ("key", &self.key),
            ("where", &self.condition),
            ("dt", &self.day),
            ("as_of", &self.as_of),
        ];
        let optional =
            optional.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        let mut fields = vec![("table", self.table.as_str())];
        fields.extend(optional);
        fields.extend(self.all.then_some(("all", "yes")));
        fields.push(("ttl", &self.ttl));
        fields
    }

    /// Returns the `weir archive restore` command that has the same effect as the form.
    pub(crate) fn command(&self) -> String {
        let mut command = "weir archive restore".to_owned();
        for (name, value) in self.fields() {
            match name {
                "all" => command.push_str(" --all"),
                name => {
                    let flag = name.replace('_', "-");
                    command.push_str(&format!(" --{flag} {}", shell_word(value)));
                }
            }
        }
        command
    }

    /// Converts the form to a request.
    pub(crate) fn request(&self) -> RestoreRequest {
        RestoreRequest {
            table: self.table.clone(),
            key: self.key.clone(),
            condition: self.condition.clone(),
            day: self.day.clone(),
            as_of: self.as_of.clone(),
            all: self.all,
            ttl: self.ttl.clone(),
        }
    }
}

impl EraseForm {
    /// Parses the fields of the form of an erasure.
    ///
    /// # Errors
    /// The field `table` is missing.
    pub(crate) fn of(fields: &Query) -> Result<Self, PageError> {
        let text = |name: &str| fields.get(name).map(str::to_owned);
        Ok(Self { table: table(fields)?, equals: text("equals"), begins_with: text("begins_with") })
    }

    /// Returns the fields of the form.
    pub(crate) fn fields(&self) -> Vec<(&'static str, &str)> {
        let optional = [("equals", &self.equals), ("begins_with", &self.begins_with)];
        let optional =
            optional.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        std::iter::once(("table", self.table.as_str())).chain(optional).collect()
    }

    /// Returns the `weir archive erase` command that has the same effect as the form.
    pub(crate) fn command(&self) -> String {
        let mut command = "weir archive erase".to_owned();
        for (name, value) in self.fields() {
            let flag = name.replace('_', "-");
            command.push_str(&format!(" --{flag} {}", shell_word(value)));
        }
        command
    }

    /// Converts the form to a request.
    pub(crate) fn request(&self) -> EraseRequest {
        EraseRequest {
            table: self.table.clone(),
            equals: self.equals.clone(),
            begins_with: self.begins_with.clone(),
        }
    }
}

fn table(fields: &Query) -> Result<String, PageError> {
    let missing =
        || PageError::bad_input("table", "the field is missing", "the name of an archived table");
    fields.get("table").map(str::to_owned).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_a_command() {
        let form = |text: &str| RestoreForm::of(&Query::parse(text).unwrap()).unwrap();
        for (text, command) in [
            (
                "table=movies&all=on&ttl=strip",
                "weir archive restore --table movies --all --ttl strip",
            ),
            (
                "table=movies&where=year+%3D+2013&dt=2026-11-21&ttl=60",
                "weir archive restore --table movies --where 'year = 2013' --dt 2026-11-21 --ttl 60",
            ),
            (
                "table=t&key=%7B%22id%22%3A%22o%27k%22%7D&as_of=1",
                r#"weir archive restore --table t --key '{"id":"o'\''k"}' --as-of 1 --ttl strip"#,
            ),
        ] {
            assert_eq!(form(text).command(), command);
        }
        assert!(RestoreForm::of(&Query::parse("all=on").unwrap()).is_err());
        let erase = EraseForm::of(&Query::parse("table=t&begins_with=pk%3DTENANT%237%23").unwrap());
        assert_eq!(
            erase.unwrap().command(),
            "weir archive erase --table t --begins-with 'pk=TENANT#7#'"
        );
    }
}
