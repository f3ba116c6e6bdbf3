//! Reads flags through OpenFeature's SDK and its OFREP provider for Rust. Reads one line of JSON, and prints one.

use open_feature::{
    Client, EvaluationContext, EvaluationContextFieldValue, EvaluationError, EvaluationErrorCode, EvaluationResult,
    OpenFeature, StructValue,
};
use open_feature_ofrep::{OfrepOptions, OfrepProvider};
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

async fn client(domain: &str, base_url: &str, key: Option<&str>) -> Client {
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        headers.insert("X-API-Key", HeaderValue::from_str(key).expect("a key"));
    }
    let options = OfrepOptions { base_url: base_url.to_owned(), headers, ..OfrepOptions::default() };
    let provider = OfrepProvider::new(options).await.expect("a provider");
    let mut api = OpenFeature::singleton_mut().await;
    api.set_named_provider(domain, provider).await;
    api.create_named_client(domain)
}

fn context(plan: &Value, subject: &Value) -> EvaluationContext {
    let mut context = EvaluationContext::default();
    let Some(name) = subject.as_str() else { return context };
    let subject = &plan["subjects"][name];
    context = context.with_targeting_key(subject["identifier"].as_str().expect("an identifier"));
    for (name, value) in subject["traits"].as_object().into_iter().flatten() {
        let value = match value {
            Value::Bool(value) => EvaluationContextFieldValue::Bool(*value),
            Value::Number(value) if value.is_i64() => {
                EvaluationContextFieldValue::Int(value.as_i64().expect("an integer"))
            }
            Value::Number(value) => EvaluationContextFieldValue::Float(value.as_f64().expect("a float")),
            Value::String(value) => EvaluationContextFieldValue::String(value.clone()),
            // This SDK has no null, so the trait is left out.
            _ => continue,
        };
        context = context.with_custom_field(name, value);
    }
    context
}

/// Returns the result of an evaluation. This SDK leaves the default value to the application.
fn told<T: Into<Value>>(result: EvaluationResult<open_feature::EvaluationDetails<T>>, default: &Value) -> Value {
    match result {
        Ok(details) => json!({
            "value": details.value.into(),
            "reason": details.reason.map(|reason| reason.to_string()),
            "variant": details.variant,
        }),
        Err(EvaluationError { code, .. }) => {
            let code = match code {
                // The text of this code is the message.
                EvaluationErrorCode::General(_) => "GENERAL".to_owned(),
                code => code.to_string(),
            };
            json!({"value": default, "reason": "ERROR", "error": code})
        }
    }
}

struct Object(StructValue);

fn member(value: &open_feature::Value) -> Value {
    match value {
        open_feature::Value::Bool(value) => json!(value),
        open_feature::Value::Int(value) => json!(value),
        open_feature::Value::Float(value) => json!(value),
        open_feature::Value::String(value) => json!(value),
        open_feature::Value::Array(items) => items.iter().map(member).collect(),
        open_feature::Value::Struct(value) => Object(value.clone()).into(),
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Value {
        Value::Object(object.0.fields.iter().map(|(name, value)| (name.clone(), member(value))).collect())
    }
}

async fn ask(client: &Client, plan: &Value, question: &Value) -> Value {
    let flag = question["flag"].as_str().expect("a flag");
    let (context, default) = (context(plan, &question["subject"]), &question["default"]);
    let context = Some(&context);
    match question["type"].as_str().expect("a type") {
        "boolean" => told(client.get_bool_details(flag, context, None).await, default),
        "string" => told(client.get_string_details(flag, context, None).await, default),
        "integer" => told(client.get_int_details(flag, context, None).await, default),
        "float" => told(client.get_float_details(flag, context, None).await, default),
        "object" => {
            let details = client.get_struct_details::<Object>(flag, context, None).await;
            told(details, default)
        }
        other => panic!("no type: {other}"),
    }
}

impl TryFrom<StructValue> for Object {
    type Error = String;

    fn try_from(value: StructValue) -> Result<Object, String> {
        Ok(Object(value))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let line = std::io::stdin().lines().next().expect("a line with what to ask").expect("standard input");
    let plan: Value = serde_json::from_str(&line).expect("the line is JSON");
    // This version of the provider does not read the variable itself.
    let endpoint = std::env::var("OFREP_ENDPOINT").expect("OFREP_ENDPOINT is set");

    let plain = client("plain", &endpoint, None).await;
    let mut questions = Vec::new();
    for question in plan["questions"].as_array().expect("questions") {
        questions.push(ask(&plain, &plan, question).await);
    }
    let first = &plan["questions"][0];
    let secret = json!({"flag": "fraud_threshold", "type": "integer", "default": 1, "subject": "for servers"});
    let server = client("server", &endpoint, plan["server_key"].as_str()).await;
    let wrong = client("wrong", &endpoint, Some("harbour-client-key-of-another")).await;
    let down = client("down", plan["nobody"].as_str().expect("an address"), None).await;
    let answers = json!({
        "questions": questions,
        "server_key": ask(&server, &plan, &secret).await,
        "wrong_key": ask(&wrong, &plan, first).await,
        "server_down": ask(&down, &plan, first).await,
    });
    println!("answers {answers}");
}
