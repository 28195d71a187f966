//! A mesh: its instances, and a form that calls one.

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::mesh::InstanceId;
use convoke_core::mesh::envelope::DATA_BYTES_MAX;
use convoke_core::{Json, duration};

use crate::AppState;
use crate::body::Params;
use crate::dashboard::form::Form;
use crate::dashboard::json::pretty;
use crate::dashboard::layout::{self, Frame, MESH, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{encode, span};
use crate::error::{ApiError, ApiResult};
use crate::mesh::{self, MeshInstance, MeshName, Reply};

/// Three times its length, for characters that a form encodes.
const FORM_BYTES_MAX: usize = 3 * DATA_BYTES_MAX + (8 << 10);

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/mesh", show).form("/mesh/call", call)
}

#[derive(Template)]
#[template(path = "mesh.html")]
struct MeshTemplate {
    page: Page,
    address: String,
    /// The mesh that is shown; empty if none was chosen.
    mesh: String,
    /// The names of the configuration, each with its link.
    names: Vec<(String, String)>,
    /// Why the instances cannot be shown.
    problem: Option<String>,
    instances: Vec<Row>,
    fields: Fields,
    outcome: Option<Outcome>,
    command: String,
}

struct Row {
    id: u64,
    hostname: String,
    heartbeat: String,
    in_flight: String,
    handlers: String,
    p50: String,
    p99: String,
}

impl From<MeshInstance> for Row {
    fn from(instance: MeshInstance) -> Self {
        let figures = instance.figures;
        let number = |of: fn(&convoke_core::mesh::MeshFigures) -> u64| {
            figures.as_ref().map_or_else(|| "–".into(), |figures| of(figures).to_string())
        };
        let time = |us: Option<u32>| us.map_or_else(|| "–".into(), |us| format!("{:.1} ms", f64::from(us) / 1_000.0));
        Row {
            id: instance.instance_id.0,
            hostname: instance.hostname,
            heartbeat: span(instance.heartbeat_age),
            in_flight: number(|figures| figures.in_flight),
            handlers: number(|figures| figures.handlers),
            p50: time(figures.and_then(|figures| figures.p50_us)),
            p99: time(figures.and_then(|figures| figures.p99_us)),
        }
    }
}

/// The fields of the form, as they were typed.
struct Fields {
    instance: String,
    request_type: String,
    data: String,
    timeout: String,
}

/// How a call ended.
struct Outcome {
    is_good: bool,
    text: String,
    data: String,
}

async fn show(State(state): State<AppState>, mut params: Params, frame: Frame) -> ApiResult {
    let mesh = params.text("name")?.unwrap_or_default();
    let fields = Fields {
        instance: params.text("instance")?.unwrap_or_default(),
        request_type: String::new(),
        data: "{}".into(),
        timeout: String::new(),
    };
    render(&state, frame, mesh, fields, None).await
}

async fn render(state: &AppState, frame: Frame, mesh: String, fields: Fields, outcome: Option<Outcome>) -> ApiResult {
    let Some(meshes) = &state.meshes else {
        return Err(ApiError::not_found(
            "this node knows no Redis with meshes: set dashboard.mesh, or use Redis as the bus",
        ));
    };
    // With one name there is nothing to choose.
    let mesh = if mesh.is_empty() && meshes.names().len() == 1 { meshes.names()[0].clone() } else { mesh };
    let (instances, problem) = match read(state, &mesh).await {
        Ok(instances) => (instances, None),
        Err(error) => (Vec::new(), Some(error.message)),
    };
    let path = format!("/v1/mesh/{}/call", encode(&mesh));
    let body = r#"{"instanceId":1,"type":"getStatus","data":{}}"#;
    layout::render(&MeshTemplate {
        address: meshes.address().to_owned(),
        names: meshes.names().iter().map(|name| (name.clone(), path_of(name))).collect(),
        command: frame.curl_with("POST", &path, body),
        page: if outcome.is_some() { frame.page(MESH, "Mesh").at_rest() } else { frame.page(MESH, "Mesh") },
        mesh,
        problem,
        instances,
        fields,
        outcome,
    })
}

async fn read(state: &AppState, name: &str) -> ApiResult<Vec<Row>> {
    if name.is_empty() {
        return Ok(Vec::new());
    }
    let MeshName(name) = name.parse()?;
    Ok(mesh::read(state, &name).await?.instances.into_iter().map(Row::from).collect())
}

fn path_of(name: &str) -> String {
    format!("/mesh?name={}", encode(name))
}

async fn call(State(state): State<AppState>, frame: Frame, request: Request) -> ApiResult {
    let form = Form::read(request, FORM_BYTES_MAX).await?;
    let mesh = form.need("name")?.to_owned();
    let text = |name: &str| form.get(name).unwrap_or_default().to_owned();
    let fields =
        Fields { instance: text("instance"), request_type: text("type"), data: text("data"), timeout: text("timeout") };
    let outcome = match send(&state, &mesh, &fields).await {
        Ok(Reply { data, took }) => Outcome {
            is_good: true,
            text: format!("Instance {} replied in {}.", fields.instance, span(took)),
            data: if frame.viewer.payloads_hidden { "hidden from this token".into() } else { pretty(data.as_str()) },
        },
        Err(error) => Outcome { is_good: false, text: error.message, data: String::new() },
    };
    let noted = mesh::noted(&mesh, &fields.instance, &fields.request_type);
    Ok(noted.on(render(&state, frame, mesh, fields, Some(outcome)).await?))
}

async fn send(state: &AppState, name: &str, fields: &Fields) -> ApiResult<Reply> {
    let MeshName(name) = name.parse()?;
    let instance: InstanceId = fields.instance.parse()?;
    let text = if fields.data.is_empty() { "null" } else { &fields.data };
    let data = Json::parse(text.to_owned()).map_err(|_| ApiError::invalid("data", "expected JSON as data"))?;
    let timeout = match fields.timeout.as_str() {
        "" => None,
        text => Some(duration::parse(text).map_err(|message| ApiError::invalid("timeout", message))?),
    };
    mesh::send(state, &name, instance, &fields.request_type, &data, timeout).await
}
