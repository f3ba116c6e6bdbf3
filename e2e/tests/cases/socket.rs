//! Unix domain socket, for applications that do not use TCP.

use http::Method;
use remora_e2e::harness::{App, with_namespace};

#[tokio::test]
async fn socket_answers_like_port() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let app = case.pod(&App::new("shop").inject("storefront").annotate("remora.dev/unix-socket", "true")).await?;
        let key = case.client_key();
        let headers = [("x-environment-key", key.as_str())];
        let path = "/ask?path=/api/v1/flags/&socket=/var/run/remora-socket/remora.sock";
        let by_socket: serde_json::Value = app.send(Method::GET, path, &headers, "").await?.json()?;
        let by_port = app.ask(Method::GET, "/api/v1/flags/", Some(&key), None).await?;
        anyhow::ensure!(by_socket["status"] == 200 && by_port.status == 200, "{by_socket} {by_port:?}");
        anyhow::ensure!(by_socket["body"] == by_port.body.as_str(), "{by_socket} is not {by_port:?}");
        Ok(())
    })
    .await
}
