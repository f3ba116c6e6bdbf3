//! The application's first requests: its flags, requested once.

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ask::{Reply, ask, post};

/// Flag and identity that the application asks for, and the addresses of both APIs.
#[derive(Clone, Debug, clap::Args)]
pub struct Question {
    /// Flag to evaluate over OFREP.
    #[arg(long)]
    pub flag: String,
    /// Client-side key of the environment, which the Flagsmith API requires.
    #[arg(long)]
    pub environment_key: String,
    /// Send the key over OFREP too, which a pod with several environments needs.
    #[arg(long)]
    pub key_for_ofrep: bool,
    /// Identifier of the identity to evaluate for.
    #[arg(long, default_value = "someone")]
    pub identifier: String,
    /// Base URL of OFREP. The webhook sets it.
    #[arg(long, env = "OFREP_ENDPOINT")]
    pub ofrep: String,
    /// Base URL of the Flagsmith API. The webhook sets it.
    #[arg(long, env = "FLAGSMITH_API_URL")]
    pub flagsmith: String,
}

impl Question {
    /// Evaluates the flag over OFREP.
    pub(super) async fn ofrep(&self) -> anyhow::Result<Reply> {
        let url = format!("{}/ofrep/v1/evaluate/flags/{}", self.ofrep.trim_end_matches('/'), self.flag);
        let key = self.key_for_ofrep.then_some(self.environment_key.as_str());
        accepted(ask(post(&url, key, &json!({"context": {"targetingKey": self.identifier}}))?).await?)
    }

    /// Requests all flags of the identity over the Flagsmith API.
    async fn flagsmith(&self) -> anyhow::Result<Reply> {
        let url = format!("{}/identities/", self.flagsmith.trim_end_matches('/'));
        accepted(
            ask(post(&url, Some(&self.environment_key), &json!({"identifier": self.identifier, "traits": []}))?)
                .await?,
        )
    }
}

fn accepted(reply: Reply) -> anyhow::Result<Reply> {
    ensure!(reply.status == 200, "refused with status {}: {}", reply.status, reply.body);
    reply.json()?;
    Ok(reply)
}

/// Answers to the first two requests of the process.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct First {
    /// Time of the first request.
    pub at: Timestamp,
    /// Answer over OFREP.
    pub ofrep: Reply,
    /// Answer of the Flagsmith API.
    pub flagsmith: Reply,
}

impl First {
    /// Sends both requests, once each.
    pub(super) async fn ask(question: &Question) -> anyhow::Result<Self> {
        let at = Timestamp::now();
        let ofrep = question.ofrep().await.context("the first request, through OFREP")?;
        let flagsmith = question.flagsmith().await.context("the second request, in Flagsmith's dialect")?;
        Ok(Self { at, ofrep, flagsmith })
    }
}
