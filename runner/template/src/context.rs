//! The environment of a template: the account, the parameters and the folder.

use std::{collections::BTreeMap, path::PathBuf};

/// The values that the evaluation of a template needs but the template does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// `AWS::Region`, the region in ARNs.
    pub region: String,
    /// `AWS::AccountId`, 12 digits.
    pub account_id: String,
    /// `AWS::StackName`.
    pub stack_name: String,
    /// Values of the template's parameters. They replace the defaults.
    pub parameters: BTreeMap<String, String>,
    /// The template's folder, in which `CodeUri` is inspected. With `None`, no files are inspected,
    /// and every function with a `provided` runtime counts as a Cargo package.
    pub folder: Option<PathBuf>,
    /// True if a different runtime executes all functions, in any language.
    pub invoked_elsewhere: bool,
}

impl Default for Context {
    /// Returns the region `us-east-1`, the account `000000000000`, the stack `weir`, no parameters
    /// and no folder.
    fn default() -> Context {
        Context {
            region: "us-east-1".to_owned(),
            account_id: "000000000000".to_owned(),
            stack_name: "weir".to_owned(),
            parameters: BTreeMap::new(),
            folder: None,
            invoked_elsewhere: false,
        }
    }
}

impl Context {
    /// Returns the ARN of a table.
    pub(crate) fn table_arn(&self, name: &str) -> String {
        format!("arn:aws:dynamodb:{}:{}:table/{name}", self.region, self.account_id)
    }

    /// Returns the ARN of a function.
    pub(crate) fn function_arn(&self, name: &str) -> String {
        format!("arn:aws:lambda:{}:{}:function:{name}", self.region, self.account_id)
    }
}
