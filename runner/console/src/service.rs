//! Routes a request to a page, its JSON version, an action, an asset, or a stream of events.
//!
//! The gate checks `Host` and `Origin` before a request gets here.

use std::convert::Infallible;
use std::sync::Arc;

use client::endpoint::ClockReading;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use maud::Markup;
use serde::Serialize;
use server::gate::{Dialect, Progress, RequestBody, Service};
use tokio::sync::{Semaphore, watch};

use crate::actions::{self, Done};
use crate::body::Body;
use crate::context::Context;
use crate::error::PageError;
use crate::frame::{self, Framed, Live};
use crate::pages::table::Export;
use crate::pages::{
    archive, copies, counters, filter, item, migration, migrations, partitions, pipelines, record,
    ring, stream, table, tables, versions,
};
use crate::query::{self, Query};
use crate::response::{self, Content};
use crate::{assets, clock, events};

/// The maximum size in bytes of a form. An item has at most 400 KB. JSON and form encoding can make
/// it eight times longer.
const FORM_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The service of a console.
pub(crate) struct Pages {
    context: Arc<Context>,
    /// Limits the number of event streams.
    streams: Arc<Semaphore>,
    /// Becomes true when the console shuts down.
    stopped: watch::Receiver<bool>,
}

impl Pages {
    /// Creates the service. Event streams end when `stopped` becomes true.
    pub(crate) fn new(context: Arc<Context>, stopped: watch::Receiver<bool>) -> Self {
        Self { context, streams: Arc::new(Semaphore::new(events::STREAMS_MAX)), stopped }
    }
}

impl Service for Pages {
    type Body = Body;
    type Error = Infallible;

    fn dialect(&self) -> Dialect {
        Dialect::Json
    }

    async fn answer(
        &self,
        request: Request<RequestBody>,
        _: &Progress,
    ) -> Result<Response<Body>, Infallible> {
        let address =
            request.uri().path_and_query().map_or("/", |address| address.as_str()).to_owned();
        let form = Form::of(request.uri().path());
        Ok(match self.route(request, form).await {
            Ok(response) => response,
            Err(error) => self.refuse(&error, form, &address).await,
        })
    }
}

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
}

impl Form {
    /// Returns the format that a path requests.
    fn of(path: &str) -> Self {
        if path.ends_with(".json") { Self::Json } else { Self::Html }
    }
}

/// The rendered content of a page, before its frame.
struct Page {
    title: String,
    live: Option<Live>,
    /// The result of the action that led to this page.
    notice: Option<String>,
    content: PageContent,
}

enum PageContent {
    Html(Markup),
    Json(String),
}

impl Form {
    /// Returns a page in the format `self`. Calls `html` only for HTML.
    fn page<V: Serialize>(
        self,
        title: impl Into<String>,
        view: &V,
        html: impl FnOnce(&V) -> Markup,
    ) -> Result<Page, PageError> {
        let content = match self {
            Self::Html => PageContent::Html(html(view)),
            Self::Json => {
                let json = serde_json::to_string(view);
                PageContent::Json(json.map_err(|error| PageError::Store(error.to_string()))?)
            }
        };
        Ok(Page { title: title.into(), live: None, notice: None, content })
    }
}

impl Page {
    /// Returns the page with a kind of live updates.
    fn live(self, live: Live) -> Self {
        Self { live: Some(live), ..self }
    }
}

/// Returns the page at a path.
async fn page(
    context: &Context,
    path: &[&str],
    query: &Query,
    form: Form,
) -> Result<Page, PageError> {
    Ok(match path {
        [] | ["pipelines"] => form
            .page("Pipelines", &pipelines::view(context, query).await?, pipelines::html)?
            .live(Live::Figures),
        ["stream"] => {
            let view = stream::view(context, query).await?;
            form.page("Stream", &view, |view| stream::html(view, context.writes()))?
                .live(Live::Records)
        }
        ["stream", "filter"] => {
            form.page("Filter", &filter::view(context, query).await?, filter::html)?
        }
        ["stream", name] => {
            let view = record::view(context, name, query).await?;
            let page = form.page("Record", &view, |view| record::html(view, context.writes()))?;
            if view.is_open() { page.live(Live::Reload) } else { page }
        }
        ["migrations"] => form
            .page("Migrations", &migrations::view(context).await?, migrations::html)?
            .live(Live::Reload),
        ["migrations", name] => form
            .page(format!("Migration {name}"), &migration::view(context, name).await?, |view| {
                migration::html(view, context.writes())
            })?
            .live(Live::Reload),
        ["archive"] => {
            let view = archive::view(context, query).await?;
            let page = form.page("Archive", &view, |view| archive::html(view, context.writes()))?;
            if view.is_running() { page.live(Live::Reload) } else { page }
        }
        ["versions"] => {
            form.page("Versions", &versions::view(context, query).await?, versions::html)?
        }
        ["counters"] => form
            .page("Counters", &counters::view(context, query).await?, counters::html)?
            .live(Live::Reload),
        ["copies"] => form
            .page("Copies", &copies::view(context, query).await?, copies::html)?
            .live(Live::Reload),
        ["tables"] => form.page("Tables", &tables::view(context, query).await?, tables::html)?,
        ["tables", name] => form.page(
            format!("Table {name}"),
            &table::view(context, name, query).await?,
            table::html,
        )?,
        ["tables", name, "item"] => {
            let view = item::view(context, name, query).await?;
            form.page(format!("Item of {name}"), &view, |view| item::html(view, context.writes()))?
        }
        ["partitions"] => {
            let view = partitions::choice(context, query).await?;
            form.page("Partitions", &view, partitions::choice_html)?
        }
        ["partitions", name] => {
            let view = partitions::view(context, name, query).await?;
            let html = |view: &_| partitions::html(view, context.writes());
            form.page(format!("Partitions of {name}"), &view, html)?.live(Live::Reload)
        }
        ["ring"] => {
            form.page("Ring", &ring::view(context, query).await?, ring::html)?.live(Live::Reload)
        }
        _ => return Err(PageError::NotFound { what: format!("the page `/{}`", path.join("/")) }),
    })
}

/// Returns the JSON version of the page at a path, for the MCP server, which does not use HTTP.
///
/// # Errors
/// The page does not exist, or it returns an error.
pub(crate) async fn twin(
    context: &Context,
    path: &[&str],
    query: &Query,
) -> Result<String, PageError> {
    match page(context, path, query, Form::Json).await?.content {
        PageContent::Json(json) => Ok(json),
        PageContent::Html(_) => {
            Err(PageError::NotFound { what: "the JSON version of this page".to_owned() })
        }
    }
}

/// Executes the action at a path. The caller must first check that writes are allowed.
///
/// # Errors
/// The action does not exist, or it fails.
pub(crate) async fn act(
    context: &Context,
    path: &[&str],
    fields: &Query,
) -> Result<Done, PageError> {
    match path {
        ["clock", "advance"] => actions::clock::advance(context, fields).await,
        ["clock", "sweep"] => actions::clock::sweep(context).await,
        ["chaos"] => actions::chaos::switch(context, fields),
        ["stream", "redrive"] => actions::redrive::redrive(context, fields).await,
        ["migrations", name, verb] => actions::migration::act(context, name, verb, fields).await,
        ["archive", "restore"] => actions::archive::restore(context, fields),
        ["archive", "erase"] => actions::archive::erase(context, fields),
        ["tables", name, "item", "save"] => actions::item::save(context, name, fields).await,
        ["tables", name, "item", "create"] => actions::item::create(context, name, fields).await,
        ["tables", name, "item", "delete"] => actions::item::delete(context, name, fields).await,
        ["partitions", name, "split"] => actions::partition::split(context, name, fields).await,
        _ => Err(PageError::NotFound { what: format!("the action `/{}`", path.join("/")) }),
    }
}

impl Pages {
    async fn route(
        &self,
        request: Request<RequestBody>,
        form: Form,
    ) -> Result<Response<Body>, PageError> {
        let path = request.uri().path();
        let path = path.strip_suffix(".json").filter(|_| form == Form::Json).unwrap_or(path);
        let parts = path.split('/').filter(|part| !part.is_empty()).map(query::segment);
        let parts: Vec<String> = parts.collect::<Result<_, _>>()?;
        let path: Vec<&str> = parts.iter().map(String::as_str).collect();
        match (request.method(), path.as_slice()) {
            (&Method::GET | &Method::HEAD, ["assets", name]) => {
                let (content, text) = assets::find(name)
                    .ok_or_else(|| PageError::NotFound { what: format!("the asset `{name}`") })?;
                Ok(response::whole(StatusCode::OK, content, text))
            }
            (&Method::GET, ["events"]) => {
                self.events(&Query::parse(request.uri().query().unwrap_or_default())?)
            }
            (&Method::GET, ["tables", name, "items.jsonl"]) => {
                self.download(name, request.uri().query(), Export::JsonLines).await
            }
            (&Method::GET, ["tables", name, "items.csv"]) => {
                self.download(name, request.uri().query(), Export::Csv).await
            }
            (&Method::GET | &Method::HEAD, path) => {
                let address =
                    request.uri().path_and_query().map_or("/", |address| address.as_str());
                let query = Query::parse(request.uri().query().unwrap_or_default())?;
                let page = page(&self.context, path, &query, form);
                // The page and its frame send their requests to the store concurrently.
                let (page, clock) = tokio::join!(page, self.clock(form));
                let notice = query.get("notice").and_then(|it| self.context.notices().find(it));
                let page = Page { notice, ..page? };
                Ok(self.show(page, address, clock, StatusCode::OK))
            }
            (&Method::POST, path) => self.act(path, request, form).await,
            (method, _) => {
                let what = format!("the method {method} is not allowed");
                Err(PageError::bad_input("the request", what, "GET for a page, POST for an action"))
            }
        }
    }

    fn events(&self, query: &Query) -> Result<Response<Body>, PageError> {
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let most = events::STREAMS_MAX;
            PageError::Refused(format!("{most} pages are open: close some of them"))
        })?;
        let stopped = self.stopped.clone();
        let body = match query.get("kind") {
            Some("records") => events::records(Arc::clone(&self.context), permit, stopped),
            Some("figures") => events::figures(Arc::clone(&self.context), permit, stopped),
            _ => events::reload(permit, stopped),
        };
        Ok(response::response(StatusCode::OK, Content::Events, body))
    }

    /// Returns the items of a table's page as a file.
    async fn download(
        &self,
        table: &str,
        query: Option<&str>,
        format: Export,
    ) -> Result<Response<Body>, PageError> {
        let query = Query::parse(query.unwrap_or_default())?;
        let (content, ending) = match format {
            Export::JsonLines => (Content::JsonLines, "jsonl"),
            Export::Csv => (Content::Csv, "csv"),
        };
        let text = table::export(&self.context, table, &query, format).await?;
        Ok(response::file(content, &format!("{table}.{ending}"), text))
    }

    /// Executes an action, after checking that writes are allowed.
    async fn act(
        &self,
        path: &[&str],
        request: Request<RequestBody>,
        form: Form,
    ) -> Result<Response<Body>, PageError> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, FORM_BYTES_MAX).collect().await.map_err(|_| {
            let what = format!("the body is incomplete or has more than {FORM_BYTES_MAX} bytes");
            PageError::bad_input("the form", what, "a complete body within this limit")
        })?;
        let body = body.to_bytes();
        let text = std::str::from_utf8(&body).map_err(|_| {
            PageError::bad_input(
                "the form",
                "the body is not UTF-8",
                "fields that are percent-encoded",
            )
        })?;
        let fields = Query::parse(text)?;
        let header = head.headers.get("x-weir-token").and_then(|token| token.to_str().ok());
        self.context.check_write(header.or(fields.get("token")))?;
        let done = act(&self.context, path, &fields).await?;
        Ok(match form {
            Form::Json => response::whole(StatusCode::OK, Content::Json, done.json().to_string()),
            Form::Html => {
                let notice = self.context.notices().keep(done.said);
                response::see_other(&Done::address(fields.get("back"), notice))
            }
        })
    }

    /// Reads the store's clock for the frame of an HTML page. Returns `None` for JSON, which has no
    /// frame.
    async fn clock(&self, form: Form) -> Option<ClockReading> {
        match form {
            Form::Html => clock::read(&self.context).await,
            Form::Json => None,
        }
    }

    fn show(
        &self,
        page: Page,
        address: &str,
        clock: Option<ClockReading>,
        status: StatusCode,
    ) -> Response<Body> {
        match page.content {
            PageContent::Json(json) => response::whole(status, Content::Json, json),
            PageContent::Html(main) => {
                let framed = Framed {
                    address,
                    title: &page.title,
                    main,
                    live: page.live,
                    notice: page.notice.as_deref(),
                    clock,
                };
                let html = frame::frame(&self.context, framed);
                response::whole(status, Content::Html, html.into_string())
            }
        }
    }

    async fn refuse(&self, error: &PageError, form: Form, address: &str) -> Response<Body> {
        let content = match form {
            Form::Html => PageContent::Html(error.html()),
            Form::Json => PageContent::Json(error.json().to_string()),
        };
        let page = Page { title: error.title().to_owned(), live: None, notice: None, content };
        self.show(page, address, self.clock(form).await, error.status())
    }
}
