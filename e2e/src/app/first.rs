//! The application's first line: its flags, asked once.

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ask::{Reply, ask, post};

/// What the application wants to know.
#[derive(Clone, Debug, clap::Args)]
pub struct Question {
    /// The flag to ask for through OFREP.
    #[arg(long)]
    pub flag: String,
    /// The environment's client-side key, which the Flagsmith dialect wants.
    #[arg(long)]
    pub environment_key: String,
    /// Send the key through OFREP too, which a pod with several environments needs.
    #[arg(long)]
    pub key_for_ofrep: bool,
    /// For whom.
    #[arg(long, default_value = "someone")]
    pub identifier: String,
    /// Where OFREP is spoken. The webhook sets it.
    #[arg(long, env = "OFREP_ENDPOINT")]
    pub ofrep: String,
    /// Where Flagsmith's API is spoken. The webhook sets it.
    #[arg(long, env = "FLAGSMITH_API_URL")]
    pub flagsmith: String,
}

impl Question {
    /// The flag's evaluation through OFREP.
    pub(super) async fn ofrep(&self) -> anyhow::Result<Reply> {
        let url = format!("{}/ofrep/v1/evaluate/flags/{}", self.ofrep.trim_end_matches('/'), self.flag);
        let key = self.key_for_ofrep.then_some(self.environment_key.as_str());
        accepted(ask(post(&url, key, &json!({"context": {"targetingKey": self.identifier}}))?).await?)
    }

    /// All flags of the identity, in Flagsmith's dialect.
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

/// The answers to the first two requests of the process.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct First {
    /// When the process asked.
    pub at: Timestamp,
    /// OFREP's answer.
    pub ofrep: Reply,
    /// The answer in Flagsmith's dialect.
    pub flagsmith: Reply,
}

impl First {
    /// Asks both, once each.
    pub(super) async fn ask(question: &Question) -> anyhow::Result<Self> {
        let at = Timestamp::now();
        let ofrep = question.ofrep().await.context("the first request, through OFREP")?;
        let flagsmith = question.flagsmith().await.context("the second request, in Flagsmith's dialect")?;
        Ok(Self { at, ofrep, flagsmith })
    }
}
