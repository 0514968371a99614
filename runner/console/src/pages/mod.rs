//! The pages, one folder each: `view` collects plain data, which is also the page's JSON twin, and `html` shows it.

pub(crate) mod pipelines;
