//! Requests to pods through the API server. A pod decides how much it answers, and whether with an error.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{client::Body, core::Status};

use super::{Cluster, call};
use crate::{
    api_call::CallError,
    ask::failure::{Failure, Right},
};

/// Bound of an answer that a pod gives through the API server.
const POD_ANSWER_MAX: usize = 4 << 20;
/// Bound of the message of a refusal, in characters.
const REFUSAL_MAX: usize = 1_000;

impl Cluster {
    /// Asks a pod's port over HTTP, through the API server.
    pub(in crate::ask) async fn ask_pod(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> Result<String, Failure> {
        let right = Right { verb: "get", resource: "pods/proxy".to_owned(), namespace: Some(namespace.to_owned()) };
        let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}");
        let unanswered = |message| Failure::Unanswered { right: right.clone(), message };
        let request = http::Request::get(uri).body(Body::empty()).map_err(|error| unanswered(error.to_string()))?;
        let read = async {
            let answer = self.client.send(request).await?;
            let code = answer.status();
            match Limited::new(answer.into_body(), POD_ANSWER_MAX).collect().await {
                Ok(body) => Ok(Some((code, body.to_bytes()))),
                Err(error) if error.is::<LengthLimitError>() => Ok(None),
                Err(error) => Err(kube::Error::Service(error)),
            }
        };
        let Some((code, body)) = call(right.clone(), read).await? else {
            return Err(unanswered(format!("pod {pod} answered with more than {POD_ANSWER_MAX} bytes")));
        };
        if !code.is_success() {
            return Err(Failure::of(CallError::Refused(refusal(code, &body).boxed()), right));
        }
        String::from_utf8(body.into())
            .map_err(|_| unanswered(format!("pod {pod} answered with other bytes than UTF-8")))
    }
}

/// Returns the error of an answer: of the API server, or of the pod.
fn refusal(code: http::StatusCode, body: &[u8]) -> Status {
    let mut status: Status = serde_json::from_slice(body)
        .unwrap_or_else(|_| Status::failure(String::from_utf8_lossy(body).trim(), "").with_code(code.as_u16()));
    status.message = status.message.chars().take(REFUSAL_MAX).collect();
    status
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        iter,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use futures::stream;
    use http::{Response, StatusCode};
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use kube::Client;

    use super::*;

    const FRAME_BYTES: usize = 1 << 20;

    /// Asks a pod that answers with this status and 64 MiB. Returns the failure and the number of bytes that were read.
    async fn asked(code: StatusCode) -> (Failure, usize) {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let service = tower::service_fn(move |_| {
            let counted = Arc::clone(&counted);
            let frames = iter::repeat_n(Bytes::from(vec![b'x'; FRAME_BYTES]), 64).map(move |frame| {
                counted.fetch_add(FRAME_BYTES, Ordering::SeqCst);
                Ok::<_, Infallible>(Frame::data(frame))
            });
            let mut answer = Response::new(StreamBody::new(stream::iter(frames)));
            *answer.status_mut() = code;
            async move { Ok::<_, Infallible>(answer) }
        });
        let cluster = Cluster::new(&Client::new(service, "shop"), "shop".to_owned());
        let failure = cluster.ask_pod("shop", "web-1", 4778, "/metrics").await.unwrap_err();
        (failure, read.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn answer_of_pod_is_read_up_to_bound() {
        for code in [StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR] {
            let (failure, read) = asked(code).await;
            assert!(failure.to_string().contains("pod web-1 answered with more than"), "{failure}");
            assert!(read <= POD_ANSWER_MAX + FRAME_BYTES, "{read} bytes are read");
        }
    }

    #[test]
    fn message_of_refusal_is_bounded() {
        let refused = refusal(StatusCode::BAD_GATEWAY, &[b'x'; 2 * REFUSAL_MAX]);
        assert_eq!((refused.code, refused.message.len()), (502, REFUSAL_MAX));
    }
}
